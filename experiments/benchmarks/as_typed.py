"""A round as README writes it, in a process of its own: nothing is set.

  echo | python experiments/benchmarks/as_typed.py convnet4 10 10 50 0.9

Model, clients, batches of a client, batch size, momentum; if wanted precision
and conv_impl. For every line that it reads it runs a round, and prints its
seconds.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import fedjax_pfl as pfl
from experiments.benchmarks.plain_models import PLAIN

model, *numbers, momentum = sys.argv[1:6]
num_clients, steps, batch_size = map(int, numbers)
given = dict(zip(('precision', 'conv_impl'), sys.argv[6:], strict=False))

rng = np.random.default_rng(0)
shape = (num_clients, steps * batch_size, 32, 32, 3)
xs = rng.integers(0, 256, shape, dtype=np.uint8)
ys = rng.integers(0, 10, shape[:2])
data = pfl.from_arrays(list(xs), list(ys))

augment, normalise = pfl.make_transforms('cifar10', (32, 32, 3))
images = {'image_shape': (32, 32, 3), 'num_classes': 10, 'normalise': normalise}
if model in PLAIN:  # not augmented, in the benchmarks that they are from
  task = pfl.task_from_module(PLAIN[model](10), augment=normalise, **images)
else:
  task = pfl.make_task(model, augment=augment, **images, **given)
train = pfl.LocalTraining(
  epochs=1, batch_size=batch_size, momentum=float(momentum)
)
fedavg = pfl.algorithm('fedavg')
(stage,) = fedavg.build(task, fedavg.HParams(train=train))
round_fn = pfl.make_round(stage.algorithm)

key = jax.random.key(0)
server, clients = pfl.begin(stage, data, key)
cohort = jnp.arange(num_clients)
for _ in sys.stdin:
  began = time.perf_counter()
  server, clients, metrics = round_fn(server, clients, cohort, data, key)
  jax.block_until_ready((server, metrics))
  print(time.perf_counter() - began, flush=True)

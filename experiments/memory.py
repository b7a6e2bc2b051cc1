"""Print how much memory the models of all registered clients take.

  python experiments/memory.py --method=superfed --model=simple_cnn \\
      --clients=1543

What clients keep is counted in their states; the peak is that of this process
after rounds of `cohort` of them, the compiler's own memory included.
"""

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import app, flags, logging

METHOD = flags.DEFINE_string('method', 'superfed', 'A method.')
MODEL = flags.DEFINE_string('model', 'simple_cnn', 'Name of the model.')
CLIENTS = flags.DEFINE_integer('clients', 1543, 'Registered clients.', 1)
COHORT = flags.DEFINE_integer('cohort', 15, 'Clients of a round.', 1)
BATCH, STEPS, IMAGE, NUM_CLASSES = 20, 2, (32, 32, 3), 10
GIB = 2**30


def make_clients():
  """Return clients that all hold the same few images."""
  import numpy as np

  from fedjax_pfl.data import Synthetic, make_synthetic, stack_clients

  size = BATCH * STEPS
  images = make_synthetic(Synthetic(IMAGE, NUM_CLASSES, train_size=size)).train
  return stack_clients(images, [np.arange(size)] * CLIENTS.value)


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)
  import jax
  import jax.numpy as jnp

  from fedjax_pfl.algorithms import load
  from fedjax_pfl.client import local_training
  from fedjax_pfl.core import trees
  from fedjax_pfl.federated.rounds import begin, make_round
  from fedjax_pfl.models.task import make_task

  task = make_task(MODEL.value, image_shape=IMAGE, num_classes=NUM_CLASSES)
  module, data = load(METHOD.value), make_clients()
  train = local_training.LocalTraining(rounds=2, epochs=1, batch_size=BATCH)
  stages = module.build(task, module.HParams(train=train))
  key = jax.random.key(0)
  server, clients = begin(stages[0], data, key)
  for number, stage in enumerate(stages):
    if number:
      server, clients = stage.initialize(server, clients, data)
    round_fn = make_round(stage.algorithm)
    cohort = jnp.arange(min(COHORT.value, CLIENTS.value))
    ready = stage.prepare_data(server, data)
    server, clients, _ = round_fn(server, clients, cohort, ready, key)
  jax.block_until_ready((server, clients))
  params = jax.eval_shape(task.init, key)
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  print(f'{METHOD.value}, {MODEL.value} of {count:,} parameters')
  print(
    f'{CLIENTS.value:,} clients keep {trees.num_bytes(clients) / GIB:.2f} GiB'
  )
  for device in jax.devices()[:1]:
    stats = device.memory_stats()
    if stats:
      print(f'peak on {device}: {stats["peak_bytes_in_use"] / GIB:.2f} GiB')
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  print(f'peak of the process: {peak / GIB:.2f} GiB')


if __name__ == '__main__':
  app.run(main)

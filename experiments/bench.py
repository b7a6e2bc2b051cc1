"""Time a round of FedAvg: images per second of local training.

  python experiments/bench.py --model=convnet4 --clients=10 --batch=50 --json
  python experiments/bench.py --model=convnet4 --torch

Synthetic 32x32x3 images, resident on the device; crop, flip and normalisation
are part of the round. With --torch (needs PyTorch: pip install -e .[bench]) a
plain sequential PyTorch loop over the same clients and batches runs in turn
with ours, round by round, and the ratio is of the medians. Its images are
normalised floats in memory: it pays for no data pipeline.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import app, flags, logging

MODEL = flags.DEFINE_string('model', 'convnet4', 'Name of the model.')
CLIENTS = flags.DEFINE_integer('clients', 10, 'Clients of a round.', 1)
BATCH = flags.DEFINE_integer('batch', 50, 'Images of a batch.', 1)
STEPS = flags.DEFINE_integer('steps', 4, 'Batches of a client in a round.', 1)
REPEATS = flags.DEFINE_integer('repeats', 7, 'Timed rounds.', 1)
CHUNK = flags.DEFINE_string('chunk', 'auto', 'Clients side by side.')
LOWERING = flags.DEFINE_string('lowering', 'auto', 'Form of convolutions.')
TORCH = flags.DEFINE_bool('torch', False, 'Run a PyTorch loop in turn.')
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object only.')

NUM_CLASSES = 10
IMAGE = (32, 32, 3)


def make_ours():
  """Return a function that runs one compiled round to its end."""
  import jax
  import jax.numpy as jnp

  from fedjax_pfl import local
  from fedjax_pfl.algorithms import fedavg
  from fedjax_pfl.data import (
    Synthetic,
    make_synthetic,
    make_transforms,
    stack_clients,
  )
  from fedjax_pfl.engine import init_states, make_round
  from fedjax_pfl.models.task import make_task

  each = BATCH.value * STEPS.value
  spec = Synthetic(IMAGE, NUM_CLASSES, train_size=CLIENTS.value * each)
  images = make_synthetic(spec).train
  rows = [range(i * each, (i + 1) * each) for i in range(CLIENTS.value)]
  data = stack_clients(images, [jnp.array(row) for row in rows])
  augment, normalise = make_transforms('cifar10', IMAGE)
  task = make_task(
    MODEL.value,
    image_shape=IMAGE,
    num_classes=NUM_CLASSES,
    augment=augment,
    normalise=normalise,
    lowering=LOWERING.value,
  )
  hp = fedavg.HParams(local.Training(epochs=1, batch_size=BATCH.value))
  algorithm = fedavg.build(task, hp)[0].algorithm
  chunk = CHUNK.value if CHUNK.value == 'auto' else int(CHUNK.value)
  round_fn = make_round(algorithm, chunk=chunk)
  key, cohort = jax.random.key(0), jnp.arange(CLIENTS.value)
  server, clients = init_states(algorithm, data, key)

  def run():
    jax.block_until_ready(round_fn(server, clients, cohort, data, key))

  return run


def timed(run) -> float:
  began = time.perf_counter()
  run()
  return time.perf_counter() - began


def measure(runs: dict[str, Any]) -> dict[str, list[float]]:
  """Return the seconds of every repeat, the runs taken in turn."""
  seconds = {name: [] for name in runs}
  for _ in range(REPEATS.value):
    for name, run in runs.items():
      seconds[name].append(timed(run))
  return seconds


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # jax tells what it did not find
  import jax

  runs = {'jax': make_ours()}
  compile_seconds = timed(runs['jax'])
  if TORCH.value:
    from torch_loop import make_round as make_torch_round

    runs['torch'] = make_torch_round(
      MODEL.value, CLIENTS.value, STEPS.value, BATCH.value
    )
    timed(runs['torch'])
  seconds = measure(runs)
  images = CLIENTS.value * STEPS.value * BATCH.value
  rate = {
    name: images / statistics.median(times) for name, times in seconds.items()
  }
  result = {
    'model': MODEL.value,
    'clients': CLIENTS.value,
    'batch': BATCH.value,
    'steps': STEPS.value,
    'chunk': CHUNK.value,
    'lowering': LOWERING.value,
    'backend': jax.default_backend(),
    'images_per_second': rate['jax'],
    'compile_seconds': compile_seconds - images / rate['jax'],
    'seconds': seconds,
  }
  if TORCH.value:
    result['torch_images_per_second'] = rate['torch']
    result['ratio'] = rate['jax'] / rate['torch']
  if JSON.value:
    print(json.dumps(result))
    return
  for name, value in rate.items():
    low, high = min(seconds[name]), max(seconds[name])
    print(
      f'{name:6} {value:8,.0f} images/s   median of {REPEATS.value} rounds, '
      f'{images / high:,.0f} to {images / low:,.0f}'
    )
  print(f'compile {result["compile_seconds"]:.1f} s')
  if TORCH.value:
    print(f'ratio {result["ratio"]:.2f}')


if __name__ == '__main__':
  app.run(main)

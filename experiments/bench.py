"""Time a round: images per second of local training.

  python experiments/bench.py --model=convnet4 --clients=10 --batch=50 --json
  python experiments/bench.py --model=convnet4 --torch
  python experiments/bench.py --methods=all

Synthetic 32x32x3 images, resident on the device; crop, flip and normalisation
are part of the round. With --torch (needs PyTorch: pip install -e .[bench]) a
plain sequential PyTorch loop over the same clients and batches runs in turn
with ours, round by round, and the ratio is of the medians. Its images are
normalised floats in memory: it pays for no data pipeline.

With --methods (names with commas, or all) every method runs a round in turn
with FedAvg; what is compared is the time for one gradient, that is the round's
over the number of gradients that the method says it took.
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
METHODS = flags.DEFINE_list('methods', ['fedavg'], 'Methods, or all.')
TORCH = flags.DEFINE_bool('torch', False, 'Run a PyTorch loop in turn.')
JSON = flags.DEFINE_bool('json', False, 'Print one JSON object only.')

NUM_CLASSES = 10
IMAGE = (32, 32, 3)


def make_setting():
  """Return the task and the clients of all rounds."""
  import jax.numpy as jnp

  from fedjax_pfl.data import (
    Synthetic,
    make_synthetic,
    make_transforms,
    stack_clients,
  )
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
  return task, data


def make_ours(name, task, data):
  """Return a function that runs one compiled round of a method to its end.

  Of a method with several stages, a round of the last. It returns the number
  of gradients that the round took.
  """
  import jax
  import jax.numpy as jnp

  from fedjax_pfl import local
  from fedjax_pfl.algorithm import load
  from fedjax_pfl.engine import begin, make_round

  module = load(name)
  train = local.Training(epochs=1, batch_size=BATCH.value)
  stages = module.build(task, module.HParams(train=train))
  key, cohort = jax.random.key(0), jnp.arange(CLIENTS.value)
  server, clients = begin(stages[0], data, key)
  for stage in stages[1:]:
    server, clients = stage.enter(server, clients, data)
  data = stages[-1].prepare(server, data)
  chunk = CHUNK.value if CHUNK.value == 'auto' else int(CHUNK.value)
  round_fn = make_round(stages[-1].algorithm, chunk=chunk)

  def run():
    results = round_fn(server, clients, cohort, data, key)
    return int(jax.block_until_ready(results)[2]['num_steps'].sum())

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


def compare_methods(task, data) -> dict[str, Any]:
  """Return seconds of rounds, gradients, and time per gradient over FedAvg's.

  Each method in turn with FedAvg alone, so that what slows the machine down
  for a while hits both.
  """
  from fedjax_pfl.algorithm import available

  names = METHODS.value if METHODS.value != ['all'] else available()
  fedavg = make_ours('fedavg', task, data)
  steps = {'fedavg': fedavg()}
  table = {}
  for name in names:
    method = make_ours(name, task, data)
    steps[name] = method()
    seconds = measure({'fedavg': fedavg, name: method})
    each = {
      one: statistics.median(times) / steps[one]
      for one, times in seconds.items()
    }
    table[name] = {
      'gradients': steps[name],
      'seconds': seconds[name],
      'ratio': each[name] / each['fedavg'],
    }
    if not JSON.value:
      print(
        f'{name:12} {steps[name]:4} gradients '
        f'{statistics.median(seconds[name]):8.3f} s a round '
        f'{table[name]["ratio"]:6.2f} x FedAvg a gradient',
        flush=True,
      )
  return table


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # jax tells what it did not find
  import jax

  task, data = make_setting()
  if METHODS.value != ['fedavg']:
    table = compare_methods(task, data)
    if JSON.value:
      print(json.dumps({'model': MODEL.value, 'methods': table}))
    return
  runs = {'jax': make_ours('fedavg', task, data)}
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

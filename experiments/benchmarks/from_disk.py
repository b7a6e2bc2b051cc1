"""Rounds whose examples lie in files larger than memory, beside memory.

  python experiments/benchmarks/from_disk.py --share=1.5 --folder=/tmp

FedAvg with convnet3, 50 clients a round, each with ten images of 32 x 32 x 3.
The files have `share` of the machine's memory. Rounds of clients anywhere in
them, which the system forgets before each turn, take turns with rounds of the
first 20,000 clients, whose examples were read before. --ahead=false: as if runs
did not read ahead. What is written is deleted.
"""

import itertools
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from functools import partial

from absl import app, flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

EXAMPLES, SHAPE, COHORT = 10, (32, 32, 3), 50
IN_MEMORY, ROUNDS, TURNS = 20_000, 10, 15
SHARE = flags.DEFINE_float('share', 1.5, 'of memory, that the files have')
FOLDER = flags.DEFINE_string('folder', None, 'where the files are made')
AHEAD = flags.DEFINE_bool('ahead', True, 'whether to read ahead')


def clients(number: int):
  """Yield (x, y) of each client: ten images in a row of 4,000."""
  import numpy as np

  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (4_000, *SHAPE), np.uint8)
  for first in rng.integers(0, len(images) - EXAMPLES, number):
    y = rng.integers(0, 10, EXAMPLES)
    yield images[first : first + EXAMPLES], y


def runs_of(folder: str, number: int) -> dict[str, Callable[[], None]]:
  """Return functions of ROUNDS rounds each, as the loop of a run has them."""
  import jax
  import numpy as np

  from fedjax_pfl.training import build, loop, state
  from fedjax_pfl.training.program import Program

  if not AHEAD.value:
    build.read_ahead = lambda *args: None
  experiment = build.build_experiment(
    {
      **{'dataset': 'clients', 'data_dir': folder, 'partition': 'natural'},
      **{'model': 'convnet3', 'num_clients': 0, 'local_epochs': 1},
      **{'batch_size': EXAMPLES, 'client_fraction': COHORT / number},
    }
  )
  (phase,), keys = state.phases(experiment.stages), state.random_streams(0)
  program, train = Program(experiment), experiment.train
  states = experiment.placement.begin(phase.stage, train, keys['states'])
  rounds, thread = program.rounds(0, states[0]), futures.ThreadPoolExecutor(1)

  def run(calls):
    nonlocal states
    for _, (cohorts, *_) in itertools.islice(calls, ROUNDS):
      *states, metrics = rounds({}, *states, cohorts, train, keys['rounds'])
      jax.tree.map(np.asarray, metrics)  # waits

  def run_of(among):
    sampler, draw = experiment.sampler, experiment.sampler.draw
    drawn = sampler._replace(draw=lambda *args: draw(*args) % among)
    training = state.Training(
      *(experiment._replace(sampler=drawn), None, program, keys),
      *(None, None, 0, train, {}),
    )
    draw_fn = partial(thread.submit, state.cohorts_fn(training, phase))
    stops = range(1, ROUNDS * (TURNS + 1) + 1)
    return partial(run, loop.calls(draw_fn, 0, stops))

  experiment.dataset.train.x[: EXAMPLES * IN_MEMORY].sum()  # reads them
  return {'memory': run_of(IN_MEMORY), 'disk': run_of(number)}


def forget(folder: pathlib.Path) -> None:
  """Let the system drop what it has read of files, but for what is in use."""
  for path in folder.iterdir():
    with open(path, 'rb') as stream:
      os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(argv: list[str]) -> None:
  from experiments.benchmarks.timing import ratios, spread
  from fedjax_pfl.data.clients_folder import write_clients
  from fedjax_pfl.training.memory_estimate import room_on_host

  size = EXAMPLES * (4 + SHAPE[0] * SHAPE[1] * SHAPE[2])
  number = int(SHARE.value * room_on_host() / size)
  with tempfile.TemporaryDirectory(dir=FOLDER.value) as parent:
    folder = pathlib.Path(parent, 'clients')
    write_clients(folder, clients(number), num_classes=10)
    runs = runs_of(str(folder), number)
    for run in runs.values():  # compiles
      run()
    print(f'{number:,} clients, {number * size / 1e9:.1f} GB of files')
    seconds = {name: [] for name in runs}
    for _ in range(TURNS):
      forget(folder)
      for name, run in runs.items():
        began = time.perf_counter()
        run()
        seconds[name].append(time.perf_counter() - began)
  for name, took in seconds.items():
    print(f'{name}: {1000 * spread(took).median / ROUNDS:.0f} ms a round')
  speed = spread(ratios(seconds['memory'], seconds['disk']))
  print(f'speed from disk: {speed.median:.2f} of that from memory ', end='')
  print(f'({speed.low:.2f} to {speed.high:.2f})')


if __name__ == '__main__':
  app.run(main)

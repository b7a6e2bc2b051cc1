"""Seeds: runs of three seeds in one program, against one after another."""

import contextlib
import functools
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax

from experiments import commandline
from experiments.benchmarks.bar import Bar
from experiments.benchmarks.timing import seconds_of
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train, train_many

CONFIG = 'digits.py:fedbabu,quick'
SEEDS = 3


def bars(repeats: int) -> Iterator[Bar]:
  """Yield the time of all seeds together relative to one after another."""
  del repeats  # most of it is compilation
  settings = commandline.read_settings(f'{commandline.ROOT}/configs/{CONFIG}')
  settings['devices'] = 1  # of the cores that the bars of training divide
  experiments = [
    build_experiment({**settings, 'seed': seed}) for seed in range(SEEDS)
  ]
  quiet = contextlib.redirect_stdout(io.StringIO())  # the log of the runs
  with quiet, tempfile.TemporaryDirectory() as folder:
    paths = [str(Path(folder) / str(n)) for n in range(2 * SEEDS + 1)]
    train(experiments[0], paths.pop())  # compiles what both share
    alone = sum(
      seconds_of(functools.partial(train, *one))
      for one in zip(experiments, paths[:SEEDS], strict=True)
    )
    together = seconds_of(lambda: train_many(experiments, paths[SEEDS:]))
  on_cpu = jax.default_backend() == 'cpu'
  yield Bar(
    f'{SEEDS} seeds in one program',
    together / alone,
    1.0,
    'x alone',
    'at most' if on_cpu else 'below',
    f'{together:.1f} s against {alone:.1f} s, configs/{CONFIG}, with '
    'compilation and evaluation',
  )

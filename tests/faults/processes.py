"""The tiny run as a user has it: commands in a process of their own.

The compiled programs are shared, so that most of the time goes into
importing and tracing.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from compiler import QUICK

from faults import tiny

ROOT = Path(__file__).parents[2]
FIELDS = {
  'conv_impl': 'lax',  # compiles in half the time
  'num_clients': 5,
  'max_train_examples': 200,
  'client_fraction': 0.4,
  'rounds': 6,
  'local_epochs': 1,
  'views': 'initial',
  'eval_every': 2,
  'checkpoint_every': 1,
  'eval_global_model': 'true',
  'learning_rate': 0.01,
}


class Commands:
  """Train, then make the report page, in `folder`."""

  def __init__(self, folder: Path):
    self.folder = folder
    self.workdir = folder / 'run'
    self.log = folder / 'log'
    folder.mkdir(exist_ok=True)

  def start(self, with_report: bool = True) -> subprocess.Popen:
    """Start the commands, one after the other, in a group of their own."""
    train = [
      *(sys.executable, 'experiments/main.py'),
      '--config=configs/digits.py:fedavg',
      *(f'--config.{name}={value}' for name, value in FIELDS.items()),
      f'--workdir={self.workdir}',
    ]
    report = [
      *(sys.executable, 'experiments/report.py', str(self.workdir)),
      f'--out={self.folder / "report.html"}',
    ]
    shell = f'{shlex.join(train)} && exec {shlex.join(report)}'
    environ = {
      'XLA_FLAGS': QUICK,
      'JAX_COMPILATION_CACHE_DIR': str(self.folder.parent / 'compiled'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
    with open(self.log, 'ab') as log:
      return subprocess.Popen(
        ['sh', '-c', shell] if with_report else train,
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # A command knows SIGINT, also where this one was started with `&`.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
      )

  def numbers(self) -> dict:
    return tiny.numbers_of(self.workdir)


def unbroken(folder: Path, with_report: bool = True) -> tuple[dict, float]:
  """Return the numbers of a run that is left alone, and how long it takes."""
  # Once to compile: all others find what this one has left.
  for name in ('first', 'second'):
    began = time.perf_counter()
    commands = Commands(folder / name)
    if commands.start(with_report).wait():
      raise RuntimeError(commands.log.read_text())
    seconds = time.perf_counter() - began
  print(f'an unbroken run takes {seconds:.0f} s', flush=True)
  return commands.numbers(), seconds


def strikes(
  commands: Commands,
  number: int,
  rng: np.random.Generator,
  between: tuple[float, float],
  with_report: bool = True,
) -> Iterator[tuple[int, bytes]]:
  """Send a signal to the group of each command, until one ends before it.

  Yields status and output of every command; that of the last one is its own.
  """
  first, last, size, struck = *between, 0, True
  while struck:
    process = commands.start(with_report)
    try:
      process.wait(rng.uniform(first, last))
      struck = False
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, number)
    status, output = process.wait(), commands.log.read_bytes()
    struck = struck and status != 0
    yield status, output[size:]
    # Enough of a run is let through for it to end some day.
    last, size = min(last * 1.2, 4 * between[1]), len(output)

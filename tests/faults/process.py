"""The tiny run as a user has it: commands in a process of their own.

The compiled programs are shared, so that most of the time goes into
importing and tracing.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from compiler import QUICK

from faults import tiny

ROOT = Path(__file__).parents[2]
ROUNDS = 6
FIELDS = {
  'conv_impl': 'lax',  # compiles in half the time
  'num_clients': 5,
  'max_train_examples': 200,
  'client_fraction': 0.4,
  'rounds': ROUNDS,
  'local_epochs': 1,
  'views': 'initial',
  'eval_every': 2,
  'checkpoint_every': 1,
  'eval_global_model': 'true',
  'learning_rate': 0.01,
}
TORN = re.compile(rb'Traceback|Error:')


class Commands:
  """Train, then make the report page, in `folder`."""

  def __init__(self, folder: Path):
    self.folder = folder
    self.workdir = folder / 'run'
    self.log = folder / 'log'
    folder.mkdir(exist_ok=True)

  def start(self, with_report: bool = True) -> subprocess.Popen:
    """Start the commands, one after the other, in a group of their own."""
    fields = [f'--config.{name}={value}' for name, value in FIELDS.items()]
    train = [
      *(sys.executable, 'experiments/main.py'),
      '--config=configs/digits.py:fedavg',
      *fields,
      f'--workdir={self.workdir}',
    ]
    report = [
      *(sys.executable, 'experiments/report.py', str(self.workdir)),
      f'--out={self.folder / "report.html"}',
    ]
    environ = {
      **os.environ,
      'XLA_FLAGS': QUICK,
      'JAX_COMPILATION_CACHE_DIR': str(self.folder.parent / 'compiled'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
    shell = f'{" ".join(train)} && exec {" ".join(report)}'
    command = ['sh', '-c', shell] if with_report else train
    with open(self.log, 'ab') as log:
      return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=heed_interrupts,
      )

  def numbers(self) -> dict:
    return tiny.numbers_of(self.workdir)


def heed_interrupts() -> None:
  """Let a command know SIGINT, also where this one was started with `&`."""
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def unbroken(folder: Path, with_report: bool = True) -> tuple[dict, float]:
  """Return the numbers of a run that is left alone, and how long it takes."""
  # Once to compile: all others find what this one has left.
  for name in ('first', 'second'):
    began = time.perf_counter()
    commands = Commands(folder / name)
    if commands.start(with_report).wait():
      raise RuntimeError(commands.log.read_text())
    seconds = time.perf_counter() - began
  return commands.numbers(), seconds


def strike(process: subprocess.Popen, number: int, after: float) -> int:
  """Send a signal to the whole group in some seconds; return the status.

  A process that has ended by then is left alone.
  """
  try:
    return process.wait(after)
  except subprocess.TimeoutExpired:
    os.killpg(process.pid, number)
    return process.wait()


KILLED = -signal.SIGKILL

"""SIGTERM and Ctrl-C at random moments of a command.

It ends with the status that shells give the signal, with a sentence and no
traceback; if rounds were done, with a checkpoint of the last of them. The same
command then continues, and ends with the numbers of the unbroken run.
"""

import signal
import tempfile
from pathlib import Path

import numpy as np

from faults.outcome import Outcome
from faults.process import TORN, Commands, strike, unbroken
from fedjax_pfl.runs import checkpoint, run_dir

# Python itself starts for a moment in which signals end it as they like.
STARTING = 1.0


def run(count: int, seed: int) -> list[Outcome]:
  """Send `count` signals, every other one SIGINT."""
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    want, seconds = unbroken(folder, with_report=False)
    rng = np.random.default_rng(seed)
    outcomes = []
    for number in (signal.SIGTERM, signal.SIGINT):
      failures, tried, runs = [], 0, 0
      while tried < count // 2:
        commands = Commands(folder / f'{number.name}{runs}')
        runs += 1
        while True:
          size = commands.log.stat().st_size if commands.log.exists() else 0
          after = rng.uniform(STARTING, seconds)
          status = strike(commands.start(with_report=False), number, after)
          if status == 0:
            break
          tried += 1
          output = commands.log.read_bytes()[size:]
          if wrong := evaluate(commands, status, number, output):
            failures.append(f'{number.name} after {after:.1f} s: {wrong}')
        print(f'{number.name}: {tried} of {count // 2}', flush=True)
        if commands.numbers() != want:
          failures.append(f'{number.name}: other numbers')
      outcomes.append(
        Outcome(number.name, tried, tried - len(failures), tuple(failures))
      )
  return outcomes


def evaluate(
  commands: Commands, status: int, number: int, output: bytes
) -> str:
  """Return what is wrong with how the command ended, or ''."""
  if status not in (128 + number, -number):
    return f'status {status}: {output.decode()}'
  if TORN.search(output):
    return output.decode()
  metrics = commands.workdir / run_dir.METRICS
  saved = checkpoint.steps(commands.workdir / 'checkpoints')
  if metrics.exists() and b'Saved after round' in output:
    last = run_dir.load_metrics(commands.workdir)[-1]['round']
    if saved[-1] != last:
      return f'round {last} is logged, and {saved} are saved'
  return ''

"""SIGTERM and Ctrl-C at random moments of a command.

It ends with the status that shells give the signal, with a sentence and no
traceback; if rounds were done, with a checkpoint of the last of them. The same
command then continues, and ends with the numbers of the unbroken run.
"""

import re
import signal
import tempfile
from pathlib import Path

import numpy as np

from faults.outcome import Outcome, outcome_of
from faults.processes import Commands, strikes, unbroken
from fedjax_pfl.runs import checkpoint, run_dir

# Python itself starts for a moment in which signals end it as they like.
STARTING = 1.0
TORN = re.compile(rb'Traceback|Error:')


def run(count: int, seed: int) -> list[Outcome]:
  """Send `count` signals, every other one SIGINT."""
  with tempfile.TemporaryDirectory() as name:
    folder, rng = Path(name), np.random.default_rng(seed)
    want, seconds = unbroken(folder, with_report=False)
    outcomes = []
    for number in (signal.SIGTERM, signal.SIGINT):
      ends, runs = [], 0
      while len(ends) < count // 2:
        commands = Commands(folder / f'{number.name}{runs}')
        between = STARTING, seconds
        for status, output in strikes(commands, number, rng, between, False):
          if status:
            wrong = evaluate(commands, status, number, output)
            ends.append(wrong and f'{number.name}: {wrong}')
        if commands.numbers() != want:
          ends.append(f'{number.name}: other numbers')
        runs += 1
        print(f'{number.name}: {len(ends)} of {count // 2}', flush=True)
      outcomes.append(outcome_of(number.name, ends))
  return outcomes


def evaluate(
  commands: Commands, status: int, number: int, output: bytes
) -> str:
  """Return what is wrong with how the command ended, or ''."""
  if status not in (128 + number, -number):
    return f'status {status}: {output.decode()}'
  if TORN.search(output):
    return output.decode()
  if b'Saved after round' in output:
    saved = checkpoint.steps(commands.workdir / 'checkpoints')
    last = run_dir.load_metrics(commands.workdir)[-1]['round']
    if saved[-1] != last:
      return f'round {last} is logged, and {saved} are saved'
  return ''

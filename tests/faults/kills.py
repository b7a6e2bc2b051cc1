"""SIGKILL at random moments of a command, from its start to its report page.

The same command is given until it comes to its end: each time that it does
not, it was killed once. Then all numbers are those of the unbroken run.
"""

import signal
import tempfile
from pathlib import Path

import numpy as np

from faults.outcome import Outcome, outcome_of
from faults.processes import Commands, strikes, unbroken


def run(count: int, seed: int) -> Outcome:
  """Kill `count` times, at moments uniform over the time of a whole run."""
  rng, ends, runs = np.random.default_rng(seed), [], 0
  with tempfile.TemporaryDirectory() as name:
    want, seconds = unbroken(Path(name))
    while len(ends) < count:
      commands = Commands(Path(name) / f'{runs}')
      *kills, (status, output) = strikes(
        commands, signal.SIGKILL, rng, (0, seconds)
      )
      got = commands.numbers() if status == 0 else output.decode()
      end = (
        '' if got == want else f'run {runs}, killed {len(kills)} times: {got}'
      )
      ends += [end] * len(kills)
      runs += 1
      print(f'killed {len(ends)} of {count}', flush=True)
  return outcome_of('killed at any moment', ends)

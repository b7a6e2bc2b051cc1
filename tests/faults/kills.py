"""SIGKILL at random moments of a command, from its start to its report page.

The same command is given until it comes to its end: each time that it does
not, it was killed once. Then all numbers are those of the unbroken run.
"""

import signal
import tempfile
from pathlib import Path

import numpy as np

from faults.outcome import Outcome
from faults.process import KILLED, Commands, strike, unbroken


def run(count: int, seed: int) -> Outcome:
  """Kill `count` times, at moments uniform over the time of a whole run."""
  rng, failures, killed, runs = np.random.default_rng(seed), [], 0, 0
  with tempfile.TemporaryDirectory() as name:
    want, seconds = unbroken(Path(name))
    print(f'an unbroken run takes {seconds:.0f} s', flush=True)
    while killed < count:
      commands, kills = Commands(Path(name) / f'{runs}'), 0
      while True:
        # Enough of a run is let through for it to end some day.
        after = rng.uniform(0, seconds) * 1.2 ** min(kills, 8)
        status = strike(commands.start(), signal.SIGKILL, after)
        if status != KILLED:
          break
        kills += 1
      killed, runs = killed + kills, runs + 1
      print(f'killed {killed} of {count}', flush=True)
      got = commands.numbers() if status == 0 else commands.log.read_text()
      if got != want:
        failures += [f'run {runs}, killed {kills} times: {got}'] * kills
  return Outcome(
    'killed at any moment', killed, killed - len(failures), tuple(failures)
  )

"""Files of a run that are cut short, emptied, gone, or have another bit.

The same command then ends in the bits of the run whose files were whole, or
in a sentence that has touched none of them.
"""

import tempfile
from pathlib import Path

import numpy as np

from faults import tiny
from faults.moments import State, all_states, read, write
from faults.outcome import Outcome, outcome_of
from fedjax_pfl.runs import lock, run_dir


def run(count: int, seed: int) -> Outcome:
  """Try `count` damages to files of runs that are half done or finished."""
  rng, ends = np.random.default_rng(seed), []
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    states = all_states(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole', with_metrics=False)
    half_done = next(one for one in states if 'checkpoints/2' in one)
    both = without_lock(half_done), without_lock(states[-1])
    for number in range(count):
      what, damaged = damage(both[number % 2], rng)
      end = evaluate(damaged, folder / str(number), want)
      ends.append(end and f'damage {number}, {what}: {end}')
  return outcome_of('damaged files', ends)


def evaluate(damaged: State, folder: Path, want: dict) -> str:
  """Return '' if the same command ends well, else how it ended."""
  write(damaged, folder)
  end = tiny.how_it_ends(folder, want)
  if end == 'a sentence':
    return '' if without_lock(read(folder)) == damaged else f'{end}, not alone'
  return '' if end == 'same bits' else end


def without_lock(state: State) -> State:
  return {k: content for k, content in state.items() if k != lock.NAME}


def damage(state: State, rng: np.random.Generator) -> tuple[str, State]:
  """Return the state with one file damaged, and what was done to it."""
  # As often a file that a person looks at as one of a checkpoint.
  names = [name for name, content in state.items() if content]
  shown = [name for name in names if '/' not in name]
  name = str(rng.choice(shown if rng.random() < 0.5 else names))
  how = str(rng.choice(['bit', 'bit', 'cut', 'empty', 'gone']))
  content, place = state[name], int(rng.integers(len(state[name])))
  flipped = bytes([content[place] ^ 1 << int(rng.integers(8))])
  changed = {
    'bit': content[:place] + flipped + content[place + 1 :],
    'cut': content[:place],
    'empty': b'',
    'gone': None,
  }
  damaged = {**state, name: changed[how]}
  if how == 'gone':
    del damaged[name]
    if name == run_dir.METRICS:  # a user deletes it to continue without
      damaged = state
  return f'{how} at {place} of {name}', damaged

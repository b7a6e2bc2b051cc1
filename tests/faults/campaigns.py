"""Campaigns of seeded faults: each yields how a trial ended, '' if well.

kills      a run is killed where a file changes, or is flushed; half of the
           times what was being written is torn. The same command then ends
           with the bits of the run that was not killed.
damages    a file is cut, emptied, gone, or has another bit. The same command
           ends in these bits, or in a sentence and has touched no file.
disks      from a change on the disk is full: that ends in a sentence, and once
           there is room, in the same bits.
mutations  fields of a config get other values: refused in a sentence, or good.
"""

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from faults import tiny
from faults.watch import State, read, watching, write

from configs import common
from fedjax_pfl.runs import lock, run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.training.build import build_experiment

FULL = ('open', 'os.mkdir', 'flush')  # what a full disk refuses
ODD = (
  *('', ' ', 'auto', 'initial', 'full', '/etc/passwd', 'nul\0', '%s{0}', b'x'),
  *(None, True, -1, 0, 1, 3, 0.5, 1e39, 2**63, 10**30, math.nan, math.inf, 1j),
  *((), (1, 5), ('initial',) * 2, [[0.5]], {1}, {'epochs': 1}, object(), len),
  *(np.int64(3), np.float32(0.1), np.array([1, 2]), Path('x')),
)


def states(folder: Path) -> tuple[list[State], dict]:
  """Return the states of a whole run before each change, and its numbers."""
  found = []
  with watching(folder, lambda what: found.append(read(folder))):
    tiny.play(folder)
  return [*found, read(folder)], tiny.numbers_of(folder)


def kills(folder: Path, seed: int, count: int) -> Iterator[str]:
  found, want = states(folder / 'whole')
  for n in np.random.default_rng(seed).permutation(len(found))[:count]:
    state, path = found[n], folder / f'{n}'
    for name in [one for one in state if '.tmp' in one and state[one]]:
      state[name] = state[name][: len(state[name]) // (1 + n % 2)]
    write(state, path)
    end = tiny.how_it_ends(path, want)
    yield '' if end == 'same bits' else f'killed at change {n}: {end}'


def damages(folder: Path, seed: int, count: int) -> Iterator[str]:
  found, want = states(folder / 'whole')
  rng = np.random.default_rng(seed)
  half = next(one for one in found if 'checkpoints/2' in one)
  for number in range(count):
    state = without_lock((half, found[-1])[number % 2])
    name = str(rng.choice([one for one in state if state[one]]))
    content, how = state.pop(name), int(rng.integers(5))
    place = int(rng.integers(len(content)))
    bit = bytes([content[place] ^ 1 << int(rng.integers(8))])
    changed = content[:place] + bit + content[place + 1 :]
    # Metrics are never gone: a user deletes them to continue without.
    if how or name == run_dir.METRICS:
      state[name] = (changed, changed, changed, content[:place], b'')[how]
    end = of_damaged(state, folder / f'{number}', want)
    yield end and f'damage {how} at {place} of {name}: {end}'


def of_damaged(state: State, folder: Path, want: dict) -> str:
  """Return '' if the same command ends well with this content."""
  write(state, folder)
  end = tiny.how_it_ends(folder, {**want, 'metrics': None})  # begun anew
  if end == 'a sentence' and without_lock(read(folder)) != state:
    return 'a sentence, and files have changed'
  return '' if end in ('a sentence', 'same bits') else end


def without_lock(state: State) -> State:
  return {k: content for k, content in state.items() if k != lock.NAME}


def disks(folder: Path, seed: int, count: int) -> Iterator[str]:
  found, want = states(folder / 'whole')
  points = np.random.default_rng(seed).integers(len(found) - 1, size=count)
  for number, point in enumerate(points):
    path, passed = folder / f'{number}', []

    def refuse(what, point=point, passed=passed):
      passed.append(what)
      if len(passed) > point and what in FULL:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with watching(path, refuse):
      end = tiny.how_it_ends(path, want)
    if end in ('a sentence', 'same bits'):
      end = tiny.how_it_ends(path, want)  # now there is room
    yield '' if end == 'same bits' else f'full at change {point}: {end}'


def mutations(folder: Path, seed: int, count: int) -> Iterator[str]:
  del folder
  rng = np.random.default_rng(seed)
  configs = [one for one in common.available() if one.startswith('digits:')]
  for _ in range(count):
    config, changed = str(rng.choice(configs)), []
    settings = common.load(config, quick=True).to_dict()
    flat = flatten(settings)
    values = [*ODD, *flat.values()]
    for name in rng.choice([*flat], rng.integers(1, 4), replace=False):
      *groups, last = name.split('.')
      inner = settings[groups[0]] if groups else settings
      inner[last] = values[rng.integers(len(values))]
      changed.append((name, inner[last]))
    end = tiny.refusal(lambda own=settings: build_experiment(own))
    yield '' if end in ('', 'a sentence') else f'{config} {changed}: {end}'

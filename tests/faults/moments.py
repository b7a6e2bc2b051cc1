"""A run that is killed at every moment at which its files change.

While a run is on its way, its directory is copied before each change of a file
and after each flush: these are all the states in which a kill can leave it.
The same command then has to end every one of them with the bits of the run
that was not broken off. Every second one has its newest file torn as well.
"""

import contextlib
import os
import tempfile
from pathlib import Path

from faults import tiny
from faults.watch import watching
from fedjax_pfl.runs import lock

State = dict[str, bytes | None]  # content of files by path; None: a folder


def run(count: int, seed: int):
  """Try all moments, about a hundred."""
  with tempfile.TemporaryDirectory() as name:
    folder, ends = Path(name), []
    states = all_states(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    torn = filter(None, map(tear, states))
    for number, state in enumerate([*states, *torn]):
      write(state, folder / f'{number}')
      end = tiny.how_it_ends(folder / f'{number}', want)
      ends.append('' if end == 'same bits' else f'moment {number}: {end}')
    yield 'killed at a change of a file', ends


def all_states(folder: Path) -> list[State]:
  """Run to the end in `folder`; return every state it was in, once."""
  states = {}

  def note(*change):
    state = read(folder)
    states.setdefault(repr(sorted(state.items())), state)

  with watching(folder, note):
    tiny.play(folder)
    note()
  return [*states.values()]


def read(folder: Path) -> State:
  """Return what is in a folder now; files may vanish while they are read."""
  state: State = {}
  for parent, folders, names in os.walk(folder):
    inside = Path(parent).relative_to(folder)
    state |= {str(inside / name): None for name in folders}
    for name in names:
      with contextlib.suppress(FileNotFoundError):
        state[str(inside / name)] = Path(parent, name).read_bytes()
  return state


def write(state: State, folder: Path) -> None:
  """Make a folder with this content."""
  folder.mkdir()
  for name, content in state.items():
    path = folder / name
    if content is None:
      path.mkdir(parents=True, exist_ok=True)
    else:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)


def tear(state: State) -> State | None:
  """Return the state with each temporary file cut in half, if it has any."""
  torn = {
    name: content[: len(content) // 2]
    for name, content in state.items()
    if content and '.tmp' in name
  }
  return {**state, **torn} if torn else None


def evaluate(damaged: State, folder: Path, want: dict) -> str:
  """Return '' if the same command ends well, else how it ended."""
  write(damaged, folder)
  # Metrics that are gone are begun anew.
  end = tiny.how_it_ends(folder, {**want, 'metrics': None})
  if end == 'a sentence' and without_lock(read(folder)) != damaged:
    return 'a sentence, not alone'
  return '' if end in ('a sentence', 'same bits') else end


def without_lock(state: State) -> State:
  return {k: content for k, content in state.items() if k != lock.NAME}

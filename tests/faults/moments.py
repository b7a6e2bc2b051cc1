"""A run that is killed at every moment at which its files change.

While a run is on its way, its directory is copied before each change of a file
and after each flush: these are all the states in which a kill can leave it.
The same command then has to end every one of them with the bits of the run
that was not broken off. Every second one has its newest file torn as well.
"""

import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from unittest import mock

import numpy as np

from faults import tiny
from faults.outcome import Outcome, outcome_of

CHANGES = ('os.rename', 'os.remove', 'os.mkdir', 'os.rmdir', 'os.truncate')
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
State = dict[str, bytes | None]  # content of files by path; None: a folder


def run(count: int, seed: int) -> Outcome:
  """Try `count` of the moments, or all if there are fewer."""
  with tempfile.TemporaryDirectory() as name:
    folder, ends = Path(name), []
    states = all_states(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    states += [torn for state in states if (torn := tear(state))]
    places = np.random.default_rng(seed).permutation(len(states))[:count]
    for place in sorted(places):
      write(states[place], folder / str(place))
      end = tiny.how_it_ends(folder / str(place), want)
      where = f'moment {place} of {len(states)}'
      ends.append('' if end == 'same bits' else f'{where}: {end}')
  return outcome_of('killed at a change of a file', ends)


def all_states(folder: Path) -> list[State]:
  """Run to the end in `folder`; return every state it was in, once."""
  states = {}

  def note(what=None):
    state = read(folder)
    states.setdefault(repr(sorted(state.items())), state)

  with watching(folder, note):
    tiny.play(folder)
    note()
  return [*states.values()]


_listeners = []


@contextlib.contextmanager
def watching(folder: Path, look):
  """Call look(what) before every change of a file below, and at each flush."""
  mutex, flush, inside = threading.RLock(), os.fsync, threading.local()

  def notify(what, path=folder):
    if getattr(inside, 'busy', False):
      return
    if not str(path).startswith(str(folder)):
      return
    inside.busy = True
    try:
      with mutex:
        look(what)
    finally:
      inside.busy = False

  def fsync(handle):
    flush(handle)
    notify('flush')

  _listeners.append(notify)
  with mock.patch.object(os, 'fsync', fsync):
    try:
      yield
    finally:
      _listeners.remove(notify)


def _audit(event, arguments):
  """Tell the listeners; Python cannot take such a hook away again."""
  writes = event == 'open' and (arguments[2] or 0) & WRITES
  if _listeners and (event in CHANGES or writes):
    path = arguments[0]
    for listener in [*_listeners]:
      listener(event, os.fsdecode(path) if isinstance(path, bytes) else path)


sys.addaudithook(_audit)


def read(folder: Path) -> State:
  """Return what is in a folder now; files may vanish while they are read."""
  state: State = {}
  for parent, folders, names in os.walk(folder):
    for name in folders:
      state[os.path.relpath(os.path.join(parent, name), folder)] = None
    for name in names:
      path = os.path.join(parent, name)
      with contextlib.suppress(FileNotFoundError), open(path, 'rb') as stream:
        state[os.path.relpath(path, folder)] = stream.read()
  return state


def write(state: State, folder: Path) -> None:
  folder.mkdir()
  for name, content in state.items():
    path = folder / name
    if content is None:
      path.mkdir(parents=True, exist_ok=True)
    else:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)


def tear(state: State) -> State | None:
  """Return the state with what was being written cut in half.

  That is each temporary file, and the last line of the metrics where no
  checkpoint is as new as that.
  """
  torn = {
    name: content[: len(content) // 2]
    for name, content in state.items()
    if content and '.tmp' in name
  }
  return {**state, **torn} if torn else None

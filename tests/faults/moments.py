"""A run that is killed at every moment at which its files change.

While a run is on its way, its directory is copied before each change of a file
and after each flush: these are all the states in which a kill can leave it.
The same command then has to end every one of them with the bits of the run
that was not broken off. Every second one has its newest file torn as well.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from unittest import mock

import numpy as np

from faults import tiny
from faults.outcome import Outcome

CHANGES = ('os.rename', 'os.remove', 'os.mkdir', 'os.rmdir', 'os.truncate')
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
State = dict[str, bytes | None]  # content of files by path; None: a folder


def run(count: int, seed: int) -> Outcome:
  """Try `count` of the moments, or all if there are fewer."""
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    states = all_states(folder / 'whole')
    want = tiny.numbers_of(folder / 'whole')
    states += [torn for state in states if (torn := tear(state))]
    places = np.arange(len(states))
    if count < len(states):
      places = np.sort(
        np.random.default_rng(seed).choice(len(states), count, replace=False)
      )
    failures = []
    for place in places:
      write(states[place], folder / str(place))
      end = tiny.how_it_ends(folder / str(place), want)
      if end != 'same bits':
        failures.append(f'moment {place} of {len(states)}: {end}')
    tried = len(places)
    return Outcome(
      'killed at a change of a file',
      tried,
      tried - len(failures),
      tuple(failures),
    )


def all_states(folder: Path) -> list[State]:
  """Run to the end in `folder`; return every state it was in, once."""
  states, seen = [], set()

  def note():
    state = read(folder)
    digest = hashlib.sha256(repr(sorted(state.items())).encode()).digest()
    if digest not in seen:
      seen.add(digest)
      states.append(state)

  with watching(folder, lambda what: note()):
    tiny.play(folder)
    note()
  return states


@contextlib.contextmanager
def watching(folder: Path, look):
  """Call look(what) before every change of a file below, and at each flush."""
  mutex, flush = threading.RLock(), os.fsync
  inside = threading.local()

  def notify(what):
    if getattr(inside, 'busy', False):
      return
    inside.busy = True
    try:
      with mutex:
        look(what)
    finally:
      inside.busy = False

  def on_change(what, path):
    if isinstance(path, bytes):
      path = os.fsdecode(path)
    if str(path).startswith(str(folder)):
      notify(what)

  def fsync(handle):
    flush(handle)
    notify('flush')

  _listeners.append(on_change)
  with mock.patch.object(os, 'fsync', fsync):
    try:
      yield
    finally:
      _listeners.remove(on_change)


_listeners = []


def _audit(event, arguments):
  """Tell the listeners; Python cannot take such a hook away again."""
  if not _listeners:
    return
  if event in CHANGES or (event == 'open' and (arguments[2] or 0) & WRITES):
    for listener in list(_listeners):
      listener(event, arguments[0])


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

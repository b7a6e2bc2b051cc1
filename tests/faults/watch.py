"""Look at every change of a file below a folder, as it happens."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

State = dict[str, bytes | None]  # content of files by path; None: a folder
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {'os.rename', 'os.link', 'os.symlink', 'os.truncate'}
CHANGES |= {'os.mkdir', 'os.remove', 'os.rmdir'}
_listeners = []


@contextlib.contextmanager
def watching(folder, look: Callable[[str], None]) -> Iterator[None]:
  """Call look(what) before a change of a file below, and at a flush."""
  flush = os.fsync

  def notify(what, path):
    if path.startswith(str(folder)):
      look(what)

  def fsync(handle):
    flush(handle)
    notify('flush', str(folder))

  _listeners.append(notify)
  try:
    with mock.patch.object(os, 'fsync', fsync):
      yield
  finally:
    _listeners.remove(notify)


def _audit(event: str, args: tuple) -> None:
  """Tell the listeners; Python cannot take such a hook away again."""
  writes = event == 'open' and isinstance(args[2], int) and args[2] & WRITES
  if (writes or event in CHANGES) and not isinstance(args[0], int):
    for notify in [*_listeners]:
      notify(event, os.fsdecode(args[0]))


sys.addaudithook(_audit)


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
  for name, content in state.items():  # folders come before what is in them
    if content is None:
      (folder / name).mkdir()
    else:
      (folder / name).write_bytes(content)

"""Look at every change of a file below a folder, as it happens."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from unittest import mock

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
PARTS = (': got ', ', expected ', '. Likely cause: ')
CHANGES = {'os.rename', 'os.link', 'os.symlink', 'os.truncate'}
CHANGES |= {'os.mkdir', 'os.remove', 'os.rmdir'}


def wrong_sentence(message: str) -> str:
  """Return what is wrong with a message; '' if it has its four parts."""
  missing = [part for part in PARTS if part not in message]
  if missing:
    return f'no {missing} in {message[:300]}'
  if not message.endswith('.') or message.endswith('..'):
    return f'no end: {message[:300]}'
  return f'{len(message)} letters' if len(message) > 4000 else ''


_listeners = []


@contextlib.contextmanager
def watching(folder, look: Callable[[str, str], None]) -> Iterator[None]:
  """Call look(what, path) before a change of a file below, and at a flush."""
  flush = os.fsync

  def notify(what, path):
    if path.startswith(str(folder)):
      look(what, path)

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

"""One process at a time writes a run directory.

The lock is `flock` on an open file in it, so it is released when the process
ends, in any way; the text in the file names the process that holds it. On NFS,
Linux has such locks on the server, for all machines, unless it is mounted with
`nolock` or `local_lock`; where a file system has no locks, runs go without.
"""

import contextlib
import errno
import os
import socket
import time
from pathlib import Path

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input

try:
  import fcntl
except ImportError:  # Windows has no flock
  fcntl = None

NAME = '.lock'
ABSENT = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Held(BadInput):
  """Another process writes the directory: it may be tried again later."""


# What this process holds: {directory: [handle, how often]}. With flock alone a
# notebook could not open its own run again after an exception.
_held: dict[str, list[int]] = {}


def acquire(folder: Path) -> None:
  """Take the lock of a directory; refuse where another process has it.

  A process may take it again, and releases it as often. Where it is refused,
  nothing is written.
  """
  key = os.path.realpath(folder)
  if key in _held:
    _held[key][1] += 1
  elif fcntl is not None:
    _held[key] = [_open_locked(folder), 1]


def release(folder: Path) -> None:
  """Release the lock; the last release removes its file."""
  key = os.path.realpath(folder)
  if key not in _held:
    return
  _held[key][1] -= 1
  if _held[key][1] == 0:
    handle, _ = _held.pop(key)
    with contextlib.suppress(OSError):  # the directory was removed meanwhile
      os.unlink(folder / NAME)  # while the lock is held
    os.close(handle)


def _open(path: Path) -> int:
  try:
    return atomic_files.open_in_place(path, os.O_RDWR | os.O_CREAT, 0o644)
  except OSError as error:
    if not path.is_symlink():
      raise
    raise bad_input(
      'workdir',
      got=f'{path}, a link to {os.readlink(path)}',
      expected='a directory whose lock is a file of its own',
      choices=['remove the link', 'another --workdir'],
    ) from error


def _open_locked(folder: Path) -> int:
  """Return the open file of the lock, with the name of this process."""
  path = folder / NAME
  while True:
    handle = _open(path)
    try:
      fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      owner = os.pread(handle, 200, 0).decode(errors='replace')
      os.close(handle)
      message = bad_input(
        'workdir',
        got=f'{folder}, which {owner or "another process"} is writing',
        expected='a directory that no other process writes',
        choices=['wait until it is done', 'stop it', 'another --workdir'],
      )
      raise Held(*message.args) from error
    except OSError as error:
      if error.errno not in ABSENT:
        os.close(handle)
        raise
    with contextlib.suppress(FileNotFoundError):
      if os.path.samestat(os.fstat(handle), os.stat(path)):
        break
    os.close(handle)  # its owner removed the file meanwhile
  now = time.strftime('%Y-%m-%d %H:%M:%S')
  text = f'process {os.getpid()} on {socket.gethostname()} since {now}'
  os.ftruncate(handle, 0)
  os.pwrite(handle, text.encode(), 0)
  return handle

"""The secret of a private run: 256 bits in a file that only its owner reads.

A private run draws its noise and its cohorts from them. They are kept while the
run is unfinished, so that it resumes with the same bits, and erased when it
finishes: whoever has the secret can take the noise away. No other file, line or
message of a run has them.
"""

import os
from pathlib import Path

from fedjax_pfl.core import atomic_files, chacha
from fedjax_pfl.core.errors import BadInput, bad_input

NAME = 'secret'
MODE = 0o600


def keep(folder: Path) -> bytes:
  """Return the secret of a run; the first call draws and stores it."""
  path = folder / NAME
  try:
    handle = atomic_files.open_in_place(path, os.O_RDONLY)
  except FileNotFoundError:
    secret = chacha.new_secret()
    atomic_files.write_bytes(path, secret.hex().encode(), MODE)
    return secret
  path.chmod(MODE)  # a copy may have lost it
  with open(handle, 'rb') as stream:
    text = stream.read(1000)
  try:
    secret = bytes.fromhex(text.decode())
    if len(secret) == chacha.SIZE:
      return secret
  except ValueError:
    pass
  raise lost(folder)


def lost(folder: Path) -> BadInput:
  """Return the error of a run without its secret."""
  return bad_input(
    'secret',
    got=f'{folder / NAME}, which is missing or holds something else',
    expected=f'{2 * chacha.SIZE} hexadecimal digits, as the run wrote them',
    choices=['put back a copy of it', 'another --workdir'],
  )


def erase(folder: Path) -> None:
  """Overwrite and remove the secret; a disk may keep a copy of it."""
  path = folder / NAME
  try:
    handle = atomic_files.open_in_place(path, os.O_WRONLY)
  except FileNotFoundError:
    return
  with open(handle, 'wb') as stream:
    stream.write(b'0' * 2 * chacha.SIZE)
    stream.flush()
    os.fsync(stream.fileno())
  path.unlink()
  atomic_files.sync_folder(folder)

"""Write files atomically, and read those that others wrote.

A file is complete or it does not exist: it is written beside its place, flushed
to the disk and moved there, so a process killed at any moment leaves the old
file or the new one. Temporary names begin with a dot and end in `.tmp`.
"""

import contextlib
import csv
import errno
import functools
import hashlib
import io
import json
import math
import os
import pathlib
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from fedjax_pfl.core.errors import bad_input

# An .npz is refused that unpacks to more bytes, and more times its own size.
MOST_BYTES, MOST_TIMES = 2**30, 200
MAX_DEPTH = 50  # of lists and objects of JSON; ours have a tenth of it


def cache_root() -> pathlib.Path:
  """Return the folder of caches; raise OSError if there is none.

  In order: $FEDJAX_PFL_CACHE, $XDG_CACHE_HOME/fedjax_pfl, ~/.cache/fedjax_pfl.
  """
  base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  default = os.path.join(base, 'fedjax_pfl')
  root = os.environ.get('FEDJAX_PFL_CACHE') or default
  try:
    return pathlib.Path(root).expanduser()
  except RuntimeError as error:  # a user without a home
    raise FileNotFoundError(f'{root}: {error}') from error


def open_in_place(
  path: str | os.PathLike, flags: int, mode: int = 0o666
) -> int:
  """Open a file that is written where it is; an opener of `open`, too.

  A link in a directory from elsewhere could name any file of this account, and
  a pipe without a reader would block: both are an OSError.
  """
  for name in ('O_NOFOLLOW', 'O_NONBLOCK'):  # Windows lacks them
    flags |= getattr(os, name, 0)
  return os.open(path, flags, mode)


def open_file(path: str | os.PathLike) -> BinaryIO:
  """Open a file to read it; a pipe, which would block, is an OSError."""
  if not stat.S_ISREG(os.stat(path).st_mode):
    raise OSError(errno.EINVAL, 'A folder, a pipe or a device', str(path))
  return open(path, 'rb')


def read_bytes(path: str | os.PathLike) -> bytes:
  with open_file(path) as stream:
    return stream.read()


def write_bytes(path: pathlib.Path, content: bytes, mode: int = 0o666) -> None:
  """Replace the file by one that holds `content`."""
  write_with(path, lambda stream: stream.write(content), mode)


def write_with(
  path: pathlib.Path, write: Callable[[BinaryIO], Any], mode: int = 0o666
) -> None:
  """Replace the file by one that holds what `write(stream)` writes."""
  # The process id keeps two writers of one file apart.
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.unlink(missing_ok=True)  # it may be a link: not to be followed
    opener = functools.partial(os.open, mode=mode)
    with open(temporary, 'xb', opener=opener) as stream:
      write(stream)
      stream.flush()
      os.fsync(stream.fileno())
    os.replace(temporary, path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise
  sync_folder(path.parent)


def write_csv(
  path: pathlib.Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> None:
  """Replace a CSV by these rows, with a header; its folder is made."""
  stream = io.StringIO()
  writer = csv.DictWriter(stream, columns, lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  path.parent.mkdir(parents=True, exist_ok=True)
  write_bytes(path, stream.getvalue().encode())


def sync_folder(folder: pathlib.Path) -> None:
  """Write the entries of a folder to the disk, where the system can."""
  # Windows opens no folders, and some network file systems sync none.
  with contextlib.suppress(OSError):
    handle = os.open(folder, os.O_RDONLY)
    try:
      os.fsync(handle)
    finally:
      os.close(handle)


# What is expected of the place that a flag or a field names.
TAKEN_BY = {
  'workdir': 'a disk that takes the files of a run',
  'data_dir': 'a disk that takes the archives and their arrays',
}


@contextlib.contextmanager
def writing(path: pathlib.Path, name: str = 'workdir') -> Iterator[None]:
  """Raise BadInput of `name` instead of OSError if a file cannot be written."""
  try:
    yield
  except OSError as error:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    more = ['make room there: the same command goes on'] * is_full
    raise bad_input(
      name,
      got=f'{path}, in which {error.filename or "a file"} cannot be written',
      expected=TAKEN_BY.get(name if is_full else '', 'a file to be written'),
      choices=[*more, 'another folder'],
      cause=f'{error.strerror or error}'.lower(),
    ) from error


@contextlib.contextmanager
def made_whole(out: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Give the path of a file or a folder, which becomes `out` when it is whole.

  Nothing may be at `out`.
  """
  out = pathlib.Path(out).expanduser()
  if os.path.lexists(out):
    raise bad_input(
      'out',
      got=str(out),
      expected='a path where nothing is',
    )
  with writing(out, 'out'):
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as half:
      path = pathlib.Path(half, out.name)
      yield path
      path.rename(out)


def sha256(path: pathlib.Path) -> str:
  """Return the digest of a file; '' if it cannot be read."""
  try:
    with open_file(path) as stream:
      return hashlib.file_digest(stream, 'sha256').hexdigest()
  except OSError:
    return ''


def is_temporary(name: str) -> bool:
  return name.startswith('.') and name.endswith('.tmp')


def remove_temporary(folder: pathlib.Path) -> None:
  """Remove temporary files that a killed process left."""
  for path in folder.iterdir():
    if is_temporary(path.name):
      remove(path)


def remove(path: pathlib.Path) -> None:
  """Remove a file, a folder with its content, or a link alone."""
  is_folder = path.is_dir() and not path.is_symlink()
  shutil.rmtree(path) if is_folder else path.unlink(missing_ok=True)


def plain(value: Any, nonfinite: Callable[[float], Any] = lambda _: None):
  """Return the value in the types of JSON: arrays as lists, NaN as null.

  Strict JSON has neither NaN nor infinity: most readers fail on them.
  """
  if hasattr(value, 'tolist'):  # numpy and jax, arrays and scalars
    value = value.tolist()
  if isinstance(value, Mapping):
    return {str(key): plain(item, nonfinite) for key, item in value.items()}
  if isinstance(value, list | tuple):
    return [plain(item, nonfinite) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return nonfinite(value)
  if value is None or isinstance(value, bool | int | float | str):
    return value
  raise TypeError(f'JSON has no {type(value).__name__}')


def write_json(path: pathlib.Path, value: Any, mode: int = 0o666) -> None:
  text = json.dumps(plain(value), indent=2, allow_nan=False)
  write_bytes(path, f'{text}\n'.encode(), mode)


def write_npz(
  path: pathlib.Path,
  arrays: Mapping[str, np.ndarray],
  *,
  compressed: bool = False,
  mode: int = 0o666,
) -> None:
  """Write named arrays; arrays of Python objects would need pickle."""
  for name, array in arrays.items():
    assert not array.dtype.hasobject, f'{name} holds Python objects'
    assert array.dtype.kind != 'V', f'{name}: .npy forgets {array.dtype}'
  stream = io.BytesIO()
  (np.savez_compressed if compressed else np.savez)(stream, **arrays)
  write_bytes(path, stream.getvalue(), mode)


@contextlib.contextmanager
def open_npz(path: pathlib.Path) -> Iterator[np.lib.npyio.NpzFile]:
  """Open named arrays; a ValueError if a name is there twice, or for a bomb."""
  with open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
    size = sum(member.file_size for member in arrays.zip.infolist())
    most = max(MOST_BYTES, MOST_TIMES * os.fstat(file.fileno()).st_size)
    if size > most:
      raise ValueError(f'{size:,} bytes when unpacked, more than {most:,}')
    if len({*arrays.files}) < len(arrays.files):
      raise ValueError(f'an array is there twice: {arrays.files}')
    yield arrays


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Return the arrays in the order in which they were written."""
  try:
    with open_npz(path) as arrays:
      return dict(arrays.items())
  except Exception as error:  # zipfile and numpy raise a dozen kinds
    raise bad_input(
      'file',
      got=str(path),
      expected='a readable .npz file without Python objects',
      cause=f'it was cut short or changed ({type(error).__name__}: {error})',
    ) from error


# ---- JSON that others wrote --------------------------------------------------


def parse_object(content: str | bytes) -> dict[str, Any]:
  """Return the object of a JSON text; raise ValueError if it is damaged.

  `json.loads` raises RecursionError on deep lists, and of a key that stands
  twice it forgets the first value.
  """
  try:
    value = json.loads(content, object_pairs_hook=_without_twins)
    is_flat = _depth(value) <= MAX_DEPTH  # later steps recurse
  except RecursionError:
    is_flat = False
  if not is_flat:
    raise ValueError(f'nested more than {MAX_DEPTH} deep')
  if not isinstance(value, dict):
    raise ValueError('not an object with names')
  return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  value = dict(pairs)
  if len(value) == len(pairs):
    return value
  (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
  raise ValueError(f'{twin!r} stands twice')


def _depth(value: Any) -> int:
  if not isinstance(value, dict | list):
    return 0
  inner = value.values() if isinstance(value, dict) else value
  return 1 + max(map(_depth, inner), default=0)

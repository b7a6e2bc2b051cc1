"""Clients on disk: examples that are mapped into memory, and never all read.

  x.npy, y.npy    [P, ...] the examples, those of a client in a row
  offsets.npy     [K + 1] client k has rows from offsets[k] to offsets[k + 1]
  test_*.npy      the same for testing, where clients have tests of their own
  clients.json    version, arrays, classes, names, and a fingerprint

A folder is whole or absent: `made_whole`. It is refused if a file is missing,
or is not that of clients.json: by shapes, dtypes, offsets, and 1,000 rows of
each array, for to read all would take minutes.
"""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.atomic_files import made_whole
from fedjax_pfl.core.errors import BadInput, bad_input, expand_home
from fedjax_pfl.core.machine import read_ahead
from fedjax_pfl.core.user_code import describe
from fedjax_pfl.data.client_data import check_images
from fedjax_pfl.data.images import IMAGE, Dataset, Images, Shape, Where

VERSION = 1
ABOUT = 'clients.json'
PARTS = 'x', 'y', 'offsets'
SIDES = '', 'test_'  # begin the names of files, for training and testing
NUM_COMPARED = 1000  # rows of an array


def write_clients(
  folder: str | os.PathLike,
  clients: Iterable[Sequence[Any]],
  *,
  num_classes: int = 0,
  client_names: Sequence[str] = (),
  class_names: Sequence[str] = (),
) -> str:
  """Write clients, one after the other, as a folder that runs read.

  Runs map it into memory: `dataset='clients', data_dir=folder,
  partition='natural', num_clients=0`. It is there when it is whole.

  Args:
    folder: a path where nothing is.
    clients: yields of each client its examples x [n, ...] and labels y [n],
      whole numbers from 0 (of tokens [n, L], -1 for none); or (x, y, test_x,
      test_y). No two clients are in memory at a time. x of uint8 are images,
      [n, H, W, ch] or [n, H, W]; others are inputs of the model.
    num_classes: 0: one more than the largest label.
    client_names: of the K clients.
    class_names: of the classes.

  Returns:
    The fingerprint of what is written, which runs compare.

  >>> import tempfile
  >>> folder = tempfile.mkdtemp() + '/two'
  >>> each = ((np.full((3, 8, 8), k, np.uint8), np.arange(3)) for k in (0, 1))
  >>> len(pfl.write_clients(folder, each))
  12
  >>> pfl.load_dataset('clients', data_dir=folder).train.x.shape
  (6, 8, 8, 1)
  """
  with made_whole(folder) as half:
    half.mkdir()
    files, largest = _write_arrays(half, clients)
    content = {
      'version': VERSION,
      'num_classes': num_classes or 1 + largest,
      'client_names': [*client_names],
      'class_names': [*class_names],
      'files': files,
      'compared': _digest_of_rows(half, files),
    }
    words = json.dumps(content, sort_keys=True).encode()
    content['fingerprint'] = hashlib.sha256(words).hexdigest()[:12]
    (half / ABOUT).write_text(json.dumps(content))
  return content['fingerprint']


def by_client(dataset: Dataset) -> Iterator[list[np.ndarray]]:
  """Yield the examples of each client of a data set, as `write_clients` reads.

  Refused is one that does not say who holds an example.
  """
  if not dataset.clients:
    raise bad_input(
      'to',
      got=f'{dataset.name}, whose examples nobody holds',
      expected='a data set that says who holds an example',
      choices=['femnist', 'npz with an array `clients`', 'folder, of clients'],
    )
  number = 1 + max(int(owners.max(initial=-1)) for owners in dataset.clients)
  sides = []
  for owners, images in zip(dataset.clients, dataset[1:3], strict=True):
    if len(owners):
      owners = np.asarray(owners).astype(int)
      order = np.argsort(owners, kind='stable')
      ends = np.cumsum(np.bincount(owners, minlength=number))
      sides.append((np.split(order, ends[:-1]), images))
  for client in range(number):
    rows = [(images, split[client]) for split, images in sides]
    yield [part[own] for images, own in rows for part in images]


# ---- a source of data/datasets.py --------------------------------------------


def peek(where: Where) -> Shape:
  """Return shapes, dtype, number of classes and of clients."""
  _, about = _read_about(where.data_dir)
  x, y, offsets = (about['files'][part] for part in PARTS)
  (places,) = offsets['shape']
  return Shape(
    tuple(x['shape'][1:]),
    about['num_classes'],
    x['dtype'],
    tuple(y['shape'][1:]),
    num_clients=places - 1,
    has_tests='test_x' in about['files'],
  )


def load(where: Where) -> Dataset:
  """Return the examples, mapped into memory, and the client of each."""
  folder, about = _read_about(where.data_dir)
  arrays = {name: _mapped(folder, name, about) for name in about['files']}
  if _digest_of_rows(folder, about['files']) != about['compared']:
    raise _changed(folder, 'other rows than those that were written')
  splits, owners = [], []
  for side in SIDES:
    if f'{side}x' not in arrays:
      splits.append(Images(*(arrays[part][:0] for part in PARTS[:2])))
      owners.append(np.zeros(0, int))
      continue
    images = Images(*(arrays[f'{side}{part}'] for part in PARTS[:2]))
    offsets, size = arrays[f'{side}offsets'], len(images.y)
    sizes = np.diff(offsets)
    ends = [*offsets[[0, -1]].tolist(), len(images.x)]
    if ends != [0, size, size] or sizes.min() < (not side):
      raise _changed(folder, f'{side}offsets.npy that do not rise to {size}')
    splits.append(images)
    owners.append(np.repeat(np.arange(len(sizes)), sizes))
  return Dataset(
    'clients',
    *splits,
    about['num_classes'],
    about['fingerprint'],
    clients=(owners[0], owners[1]),
    client_names=about['client_names'],
    class_names=about['class_names'],
  )


def _read_about(place: str) -> tuple[pathlib.Path, dict[str, Any]]:
  """Return the folder, and the content of its clients.json."""
  folder = expand_home('data_dir', place)
  if not (folder / ABOUT).is_file():
    is_half = (folder / 'x.npy').exists()
    raise bad_input(
      'data_dir',
      got=f'{place or "no folder"}, with {"x.npy, but " * is_half}no {ABOUT}',
      expected='a folder of write_clients, or of `fedjax-pfl prepare --to`',
      cause='a copy that was cut short' if is_half else 'another path',
    )
  try:
    about = atomic_files.parse_object((folder / ABOUT).read_bytes())
  except ValueError as error:
    raise _changed(folder, f'{ABOUT} that is no JSON: {error}') from error
  if about.get('version') != VERSION:
    raise bad_input(
      'data_dir',
      got=f'{folder}, of version {about.get("version")}',
      expected=f'version {VERSION}, which this program reads',
      cause='a folder of another version of fedjax_pfl: write it again',
    )
  files = [f'{side}{part}' for side in SIDES for part in PARTS]
  if {*about.get('files', ())} not in ({*files[:3]}, {*files}):
    raise _changed(folder, f'other names of arrays than {", ".join(files)}')
  return folder, about


def _mapped(
  folder: pathlib.Path, name: str, about: dict[str, Any]
) -> np.ndarray:
  """Return an array of the folder, which is what clients.json says."""
  try:
    array = np.load(folder / f'{name}.npy', mmap_mode='r', allow_pickle=False)
  except (FileNotFoundError, ValueError, EOFError) as error:
    raise _changed(folder, f'no whole {name}.npy') from error
  known = about['files'][name]
  if [*array.shape] != known['shape'] or array.dtype.name != known['dtype']:
    raise _changed(folder, f'{name}.npy of {describe(array)}')
  array.stamp = _stamp(array)
  return array


def check_unchanged(array: np.memmap) -> None:
  """Refuse an array of a folder whose file was written after it was opened."""
  if getattr(array, 'stamp', '') not in ('', _stamp(array)):
    path = pathlib.Path(array.filename)
    raise _changed(path.parent, f'{path.name} written after the run began')


def _stamp(array: np.memmap) -> tuple[int, int] | None:
  """Return size and time of the file; None if it is gone."""
  with contextlib.suppress(OSError):
    about = os.stat(array.filename)
    return about.st_size, about.st_mtime_ns


def _digest_of_rows(folder: pathlib.Path, names: Iterable[str]) -> str:
  """Return a digest of some rows of each array, and of the last one."""
  content = hashlib.sha256()
  for name in sorted(names):
    array = np.load(folder / f'{name}.npy', mmap_mode='r', allow_pickle=False)
    rows = np.linspace(0, len(array) - 1, min(len(array), NUM_COMPARED))
    rows = rows.astype(int)
    read_ahead(array, rows, rows + 1)
    content.update(np.ascontiguousarray(array[rows]).data)
  return content.hexdigest()


def _changed(folder: pathlib.Path, got: str) -> BadInput:
  return bad_input(
    'data_dir',
    got=f'{folder} with {got}',
    expected=f'the arrays that {ABOUT} describes',
    choices=['the folder, written or copied again'],
    cause='a copy that was cut short, or arrays that were changed later',
  )


# ---- writing -----------------------------------------------------------------


class _Rows:
  """An array [P, ...] that is written row after row, P not being known."""

  def __init__(self, stream: BinaryIO, like: np.ndarray):
    self._stream, self._sha256 = stream, hashlib.sha256()
    self._about = {'descr': like.dtype.str, 'fortran_order': False}
    self._like, self._size = like[:0], 0
    self._write_header()

  def _write_header(self) -> None:
    shape = self._size, *self._like.shape[1:]
    about = {**self._about, 'shape': shape}  # numpy leaves room for P
    np.lib.format.write_array_header_1_0(self._stream, about)

  def add(self, rows: np.ndarray) -> None:
    """Write these rows behind the others."""
    content = np.ascontiguousarray(rows).data
    self._stream.write(content)
    self._sha256.update(content)
    self._size += len(rows)

  def close(self) -> dict[str, Any]:
    """Return shape, dtype and digest; the array is on the disk then."""
    self._stream.seek(0)
    self._write_header()
    self._stream.flush()
    os.fsync(self._stream.fileno())
    shape = [self._size, *self._like.shape[1:]]
    digest = self._sha256.hexdigest()
    return {'shape': shape, 'dtype': self._like.dtype.name, 'sha256': digest}


def _write_arrays(
  folder: pathlib.Path, clients: Iterable[Sequence[Any]]
) -> tuple[dict[str, Any], int]:
  """Return what is said of each array, and the largest label."""
  names, files = [f'{side}{part}' for side in SIDES for part in PARTS[:2]], {}
  offsets, kinds, largest = {side: [0] for side in SIDES}, [], -1
  with contextlib.ExitStack() as opened:

    def new(name, like):
      stream = opened.enter_context(open(folder / f'{name}.npy', 'wb'))
      return files.setdefault(name, _Rows(stream, like))

    for client, given in enumerate(clients):
      arrays = _checked(client, given, kinds)
      kinds = kinds or _kinds(arrays)
      for name, array in zip(names, arrays, strict=False):
        (files.get(name) or new(name, array)).add(array)
      for side, y in zip(SIDES, arrays[1::2], strict=False):
        offsets[side].append(offsets[side][-1] + len(y))
        largest = max(largest, int(y.max(initial=-1)))
    if not kinds:
      raise bad_input('clients', got='none', expected='at least one, of (x, y)')
    for side in SIDES[: len(kinds) // 2]:
      rows = np.array(offsets[side])
      new(f'{side}offsets', rows).add(rows)
    return {name: rows.close() for name, rows in files.items()}, largest


def _checked(
  client: int, given: Sequence[Any], kinds: list[str]
) -> list[np.ndarray]:
  """Return the arrays of a client in the dtype of their use."""
  arrays = [np.asarray(array) for array in given]
  got = f'{", ".join(map(describe, arrays))} for client {client}'
  expected = '(x, y) or (x, y, test_x, test_y), with an example to train on'
  if len(arrays) not in (2, 4) or not arrays[0].size:
    raise bad_input('clients', got=got, expected=expected)
  used = []
  for x, y in zip(arrays[::2], arrays[1::2], strict=True):
    check_images(Images(x, y))
    if y.dtype.kind not in 'iu':
      raise bad_input('clients', got=got, expected='whole numbers as labels')
    if x.dtype == IMAGE:
      x = x[..., None] if x.ndim == 3 else x
    else:
      x = x.astype('float32' if x.dtype.kind == 'f' else 'int32', copy=False)
    used += [x, y.astype(np.int32)]
  if kinds and kinds != _kinds(used):
    expected = f'{", ".join(kinds)} an example, as client 0 has'
    raise bad_input('clients', got=got, expected=expected)
  return used


def _kinds(arrays: Sequence[np.ndarray]) -> list[str]:
  """Return the dtypes and shapes of examples and labels."""
  return [f'{array.dtype}{[*array.shape[1:]]}' for array in arrays]

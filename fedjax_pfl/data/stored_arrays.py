"""Image sets as .npy files: prepared ones, and the cache of decoded images.

  <cache>/<name>-<key>-v1/         decoded once, so that later starts need not

An entry is a folder of .npy files and a meta.json, whole or absent, mapped into
memory. Errors of the cache never stop a run: an unreadable entry is built
again, and without write access there is no cache.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.atomic_files import cache_root
from fedjax_pfl.core.errors import expand_home
from fedjax_pfl.data.images import SPLITS, Dataset, Images

FORMAT = 'v1'  # part of the entry's name; to be raised with another layout
HALF = '.half-'  # begins the name of an entry that is being written


def data_root(data_dir: str = '') -> pathlib.Path:
  """Return the argument, or else the default place of image sets."""
  default = os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  return expand_home('data_dir', data_dir or default)


def load_cached(
  name: str, key: str, build_fn: Callable[[], Dataset]
) -> Dataset:
  """Return the entry if it can be read, else what build_fn returns."""
  entry = f'{name}-{key}-{FORMAT}'
  # A damaged file may raise anything; the entry is then built again.
  with contextlib.suppress(Exception):
    return read_entry(cache_root() / entry)
  dataset = build_fn()
  with contextlib.suppress(OSError):  # no home, a full or a read-only disk
    write_entry(cache_root() / entry, dataset)
  return dataset


def read_entry(folder: pathlib.Path) -> Dataset:
  """Return the arrays of an entry, mapped into memory, not copied."""
  meta = atomic_files.parse_object((folder / 'meta.json').read_bytes())
  for split, shape in zip(SPLITS, meta.pop('shapes'), strict=True):
    images = Images(*(_read_array(folder, split, p) for p in Images._fields))
    if list(images.x.shape) != shape or len(images.y) != shape[0]:
      raise ValueError('the arrays are not those that meta.json describes')
    meta[split] = images
  if meta.get('clients'):
    meta['clients'] = tuple(_read_array(folder, s, 'clients') for s in SPLITS)
  # Which JSON holds as lists.
  named = 'client_names', 'class_names', 'columns', 'scales'
  names = {name: tuple(meta.get(name, ())) for name in named}
  return Dataset(**meta | names)


def _read_array(folder: pathlib.Path, split: str, part: str) -> np.ndarray:
  file = folder / f'{split}_{part}.npy'
  return np.load(file, mmap_mode='r', allow_pickle=False)


def npy_header(stream: BinaryIO) -> tuple[np.dtype, tuple[int, ...], bool]:
  """Return dtype and shape of an array, and whether columns come first."""
  major, _ = np.lib.format.read_magic(stream)
  read = getattr(np.lib.format, f'read_array_header_{major}_0')
  shape, is_fortran, dtype = read(stream)
  return dtype, shape, is_fortran


def write_entry(folder: pathlib.Path, dataset: Dataset) -> None:
  """Replace the entry by one of these arrays, whole or not at all."""
  folder.parent.mkdir(parents=True, exist_ok=True)
  # Remove what killed processes left. Another process may be writing a new one.
  for left in folder.parent.glob(f'{HALF}*'):
    with contextlib.suppress(OSError):  # removed by another process
      if time.time() - left.stat().st_mtime > 24 * 3600:
        shutil.rmtree(left)
  half = tempfile.TemporaryDirectory(prefix=HALF, dir=folder.parent)
  with half as temporary:
    # Only this account could open `temporary` itself, wherever it is moved.
    entry = pathlib.Path(temporary, 'entry')
    entry.mkdir()
    for split in SPLITS:
      arrays = getattr(dataset, split)._asdict()
      if dataset.clients:
        arrays['clients'] = dataset.clients[SPLITS.index(split)]
      for part, array in arrays.items():
        np.save(entry / f'{split}_{part}.npy', array)
    meta = dataset._asdict() | {'clients': bool(dataset.clients) or None}
    meta['shapes'] = [meta.pop(split).x.shape for split in SPLITS]
    (entry / 'meta.json').write_text(json.dumps(meta))
    # An existing entry is unreadable, or another process has just written the
    # same arrays: either may be replaced.
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(entry, folder)


def files_key(
  files: Iterable[pathlib.Path], classes: Iterable[str] = ()
) -> str:
  """Return a hash of names, sizes and times of files, without reading them.

  And of the names of classes, where they are not a part of the files.
  """
  lines = []
  for file in sorted(files):
    stat = file.stat()
    lines.append(f'{file.absolute()};{stat.st_size};{stat.st_mtime_ns}\n')
  lines += [f'{name}\n' for name in classes]
  return hashlib.sha256(os.fsencode(''.join(lines))).hexdigest()[:12]

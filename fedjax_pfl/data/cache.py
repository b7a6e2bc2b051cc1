"""Decoded image sets on disk, so that only the first start decodes.

An entry is one folder of .npy files and a meta.json, written aside and moved
into place: it is whole or it is not there. Trouble with the cache is never
the user's trouble: an entry that cannot be read is built again, one that
cannot be written is done without.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from fedjax_pfl.core.atomic_files import cache_root
from fedjax_pfl.data.images import Dataset, Images

FORMAT = 'v1'  # part of the entry's name: raise it when the layout changes
SPLITS = ('train', 'test')


def load_cached(
  name: str, key: str, build_fn: Callable[[], Dataset], cache_dir: str = ''
) -> Dataset:
  """Return the entry if it can be read, else what build_fn returns.

  The key must change whenever build_fn would return something else.
  """
  entry = f'{name.replace("/", "_")}-{key}-{FORMAT}'
  # Whatever a damaged file raises, the answer is to build it again.
  with contextlib.suppress(Exception):
    return _read(cache_root(cache_dir) / entry)
  dataset = build_fn()
  with contextlib.suppress(OSError):  # no home, a full or a read-only disk
    _write(cache_root(cache_dir) / entry, dataset)
  return dataset


def _read(folder: pathlib.Path) -> Dataset:
  meta = json.loads((folder / 'meta.json').read_text())
  splits = [
    Images(*(_load(folder / f'{split}_{part}.npy') for part in 'xy'))
    for split in SPLITS
  ]
  for images, shape in zip(splits, meta.pop('shapes'), strict=True):
    if list(images.x.shape) != shape or len(images.y) != shape[0]:
      raise ValueError('the arrays are not those that meta.json describes')
  return Dataset(train=splits[0], test=splits[1], **meta)


def _load(file: pathlib.Path) -> np.ndarray:
  return np.load(file, mmap_mode='r', allow_pickle=False)


def _write(folder: pathlib.Path, dataset: Dataset) -> None:
  folder.parent.mkdir(parents=True, exist_ok=True)
  aside = pathlib.Path(tempfile.mkdtemp(prefix='.half-', dir=folder.parent))
  try:
    for split in SPLITS:
      for part, array in getattr(dataset, split)._asdict().items():
        np.save(aside / f'{split}_{part}.npy', array)
    meta = dataset._asdict()
    meta['shapes'] = [meta.pop(split).x.shape for split in SPLITS]
    (aside / 'meta.json').write_text(json.dumps(meta))
    # What stands there was found unreadable, or was put there meanwhile by a
    # process that built the same arrays: both may go.
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(aside, folder)
  finally:
    shutil.rmtree(aside, ignore_errors=True)

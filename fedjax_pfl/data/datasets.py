"""The image sets by name: SOURCES says of each who reads it.

digits         scikit-learn's 8x8 digits, part of the installation
synthetic      generated, in any size (synthetic.py)
cifar10, ...   arrays that experiments/prepare.py wrote (prepared.py), or files
               of TensorFlow Datasets (tfds_reader.py)
folder         image files in class folders (image_folder.py)
npz            the user's own arrays, and who holds them (npz_files.py)
"""

import importlib.util
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import check_known, may_read
from fedjax_pfl.data import image_folder, npz_files, prepared
from fedjax_pfl.data.images import (
  IMAGE,
  Dataset,
  Shape,
  Synthetic,
  Where,
  divide,
  make_dataset,
)
from fedjax_pfl.data.prepared import PREPARED
from fedjax_pfl.data.stored_arrays import data_root
from fedjax_pfl.data.synthetic import make_synthetic

DEFAULT = Synthetic()


class Source(NamedTuple):
  """How one image set is read."""

  peek: Callable[[Where], Shape]  # without reading images
  load: Callable[[Where], Dataset]
  is_available: Callable[[Where], bool] = lambda where: True


def _load_digits(where: Where) -> Dataset:
  """Return the digits; every fifth image of a class is for testing.

  1,442 and 355 images, in the order of the file. Values 0 .. 16 are scaled to
  0 .. 255.
  """
  # Not by scikit-learn itself, whose import takes two seconds.
  package = pathlib.Path(importlib.util.find_spec('sklearn').origin).parent
  file = package / 'datasets' / 'data' / 'digits.csv.gz'
  rows = np.loadtxt(file, delimiter=',')
  x, y = rows[:, :-1], rows[:, -1].astype(int)
  x = np.round(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
  is_test = np.zeros(len(y), bool)
  for label in range(10):
    is_test[np.flatnonzero(y == label)[4::5]] = True
  return make_dataset(where.name, *divide(x, y, is_test), num_classes=10)


SOURCES = {
  'digits': Source(lambda where: Shape((8, 8, 1), 10), _load_digits),
  'synthetic': Source(
    lambda where: Shape(
      tuple(where.synthetic.image_shape), where.synthetic.num_classes
    ),
    lambda where: make_synthetic(where.synthetic),
  ),
  **dict.fromkeys(
    PREPARED, Source(prepared.peek, prepared.load, prepared.is_available)
  ),
  'folder': Source(
    image_folder.peek, image_folder.load, image_folder.is_available
  ),
  'npz': Source(npz_files.peek, npz_files.load, npz_files.is_available),
}
NAMES = tuple(SOURCES)


@may_read('data_dir')
def load_dataset(
  name: str,
  *,
  data_dir: str = '',
  cache_dir: str = '',
  synthetic: Synthetic = DEFAULT,
  fallback_to_synthetic: bool = False,
  log_fn: Callable[[str], None] = lambda _: None,
) -> Dataset:
  """Return an image set by its name.

  Args:
    name: one of `fedjax_pfl.data.NAMES`.
    data_dir: the folder of the data; '' is $TFDS_DATA_DIR, or else
      ~/tensorflow_datasets. 'digits' and 'synthetic' need none; for 'npz' it is
      the file, or the folder of one file a client.
    cache_dir: the folder of decoded images; '' is that of core/atomic_files.py.
    synthetic: shape, classes and sizes of the set 'synthetic'.
    fallback_to_synthetic: whether synthetic images of the same shape replace a
      set that is not there; the note of the result then says it.
    log_fn: is called with a line of text before images are decoded.

  Returns:
    Dataset with train.x and test.x [P, H, W, ch] uint8 (of 'npz' they may be
    inputs of any shape), train.y and test.y [P] int32, num_classes, a
    fingerprint of the content, and the clients that hold the examples where
    they are known.

  >>> dataset = pfl.load_dataset('digits')
  >>> dataset.train.x.shape, dataset.test.x.shape, dataset.num_classes
  ((1442, 8, 8, 1), (355, 8, 8, 1), 10)
  """
  source = _find(name)
  where = Where(name, data_dir, cache_dir, synthetic, log_fn)
  shape = source.peek(where)
  if not fallback_to_synthetic or source.is_available(where):
    return source.load(where)
  return make_synthetic(Synthetic(*shape))._replace(
    note=f'{name} is not in {data_root(data_dir)}: synthetic images of its '
    f'shape replace it; accuracies are not those of {name}.'
  )


@may_read('data_dir')
def peek(
  name: str, data_dir: str = '', synthetic: Synthetic = DEFAULT
) -> Shape:
  """Return image shape and number of classes without reading the data.

  For `folder`, the first image is opened; for `npz`, all but the images read.
  """
  return _find(name).peek(Where(name, data_dir, synthetic=synthetic))


@may_read('data_dir')
def peek_dtype(name: str, data_dir: str = '') -> str:
  """Return the dtype of the examples: 'uint8' of images, else of inputs."""
  _find(name)
  return npz_files.peek_dtype(data_dir) if name == 'npz' else IMAGE


@may_read('data_dir')
def is_available(name: str, data_dir: str = '') -> bool:
  """Return whether `load_dataset` would find the data, without reading it."""
  return _find(name).is_available(Where(name, data_dir))


def _find(name: str) -> Source:
  check_known(
    'dataset',
    [name],
    expected='a known image set',
    choices=NAMES,
    cause='a misspelt name; own images go under the names `folder` and `npz`',
  )
  return SOURCES[name]

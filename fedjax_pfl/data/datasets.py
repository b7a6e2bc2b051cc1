"""The image sets by name: SOURCES says of each who reads it.

  digits         scikit-learn's 8x8 digits, part of the installation
  synthetic      generated, in any size (synthetic.py)
  cifar10, ...   arrays that experiments/prepare.py wrote (stored_arrays.py),
                 or prepared by TensorFlow Datasets (tfds_reader.py)
  folder         image files in class folders (image_folder.py)
  npz            the user's own arrays, and who holds them (npz_files.py)

A set that prepare.py downloads is a line in PREPARED, with its transforms in
transforms.py, and its archives and their format in preparation/.
"""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

from fedjax_pfl.core.errors import bad_input, check_known, may_read
from fedjax_pfl.data import (
  digits,
  image_folder,
  npz_files,
  stored_arrays,
  tfds_reader,
)
from fedjax_pfl.data.images import IMAGE, Dataset, Shape, make_dataset
from fedjax_pfl.data.stored_arrays import data_root
from fedjax_pfl.data.synthetic import Synthetic, make_synthetic

PREPARED = {
  'cifar10': Shape((32, 32, 3), 10),
  'cifar100': Shape((32, 32, 3), 100),  # the fine labels
  'emnist/byclass': Shape((28, 28, 1), 62),
  'mnist': Shape((28, 28, 1), 10),
  'fashion_mnist': Shape((28, 28, 1), 10),
  'svhn_cropped': Shape((32, 32, 3), 10),  # without the split `extra`
  'tiny_imagenet': Shape((64, 64, 3), 200),
}
DEFAULT = Synthetic()


class Where(NamedTuple):
  """Where a set is, as the user says it; see `load_dataset`."""

  data_dir: str = ''
  cache_dir: str = ''
  synthetic: Synthetic = DEFAULT
  log_fn: Callable[[str], None] = lambda _: None


class Source(NamedTuple):
  """How one image set is read."""

  peek: Callable[[Where], Shape]  # without reading images
  load: Callable[[Where], Dataset]
  available: Callable[[Where], bool] = lambda where: True
  dtype: Callable[[Where], str] = lambda where: IMAGE


def _prepared(name: str, shape: Shape) -> Source:
  """Return the source of a set that prepare.py or tfds has prepared."""

  def available(where: Where) -> bool:
    root = data_root(where.data_dir)
    is_stored = stored_arrays.prepared_folder(name, root).is_dir()
    return is_stored or tfds_reader.find_prepared(name, root) is not None

  def load(where: Where) -> Dataset:
    root = data_root(where.data_dir)
    if not available(where):
      known = 'digits', 'synthetic', *PREPARED
      ready = [one for one in known if SOURCES[one].available(where)]
      raise stored_arrays.not_prepared(name, root, choices=ready)
    if stored_arrays.prepared_folder(name, root).is_dir():
      dataset = stored_arrays.read_prepared(name, root)
    else:
      dataset = _of_tfds(name, shape, where)
    found = Shape(dataset.train.x.shape[1:], dataset.num_classes)
    if found != shape:
      raise bad_input(
        'data_dir',
        got=f'{name} with images {found}',
        expected=f'images {shape}',
        cause='another data set, or another version of it, under this name',
      )
    return dataset

  return Source(lambda where: shape, load, available)


def _of_tfds(name: str, shape: Shape, where: Where) -> Dataset:
  """Return a set that tfds prepared, decoded once."""
  place = tfds_reader.find_prepared(name, data_root(where.data_dir))

  def build() -> Dataset:
    where.log_fn(f'Reading {name} from {place}; later runs take a stored copy.')
    splits = tfds_reader.read_splits(name, place)
    return make_dataset(name, *splits, shape.num_classes)

  key = stored_arrays.files_key(place.iterdir())
  return stored_arrays.load_cached(name, key, build, where.cache_dir)


def _find_folder(where: Where) -> pathlib.Path:
  root = data_root(where.data_dir)
  if not (root / 'train').is_dir():
    raise image_folder.not_a_folder(root, 'without train/')
  return root


SOURCES = {
  'digits': Source(lambda where: digits.SHAPE, lambda _: digits.load_digits()),
  'synthetic': Source(
    lambda where: Shape(
      tuple(where.synthetic.image_shape), where.synthetic.num_classes
    ),
    lambda where: make_synthetic(where.synthetic),
  ),
  **{name: _prepared(name, shape) for name, shape in PREPARED.items()},
  'folder': Source(
    lambda where: image_folder.peek_folder(_find_folder(where)),
    lambda where: image_folder.load_folder(
      _find_folder(where), where.cache_dir, where.log_fn
    ),
    lambda where: (data_root(where.data_dir) / 'train').is_dir(),
  ),
  'npz': Source(
    lambda where: npz_files.peek_npz(where.data_dir),
    lambda where: npz_files.load_npz(where.data_dir),
    lambda where: bool(npz_files.find_files(where.data_dir)),
    lambda where: npz_files.peek_dtype(where.data_dir),
  ),
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
  source, where = _find(name), Where(data_dir, cache_dir, synthetic, log_fn)
  shape = source.peek(where)
  if fallback_to_synthetic and not source.available(where):
    note = (
      f'{name} is not in {data_root(data_dir)}: synthetic images of its shape '
      f'replace it; accuracies are not those of {name}.'
    )
    return make_synthetic(Synthetic(*shape), note)
  return source.load(where)


@may_read('data_dir')
def peek(
  name: str, data_dir: str = '', synthetic: Synthetic = DEFAULT
) -> Shape:
  """Return image shape and number of classes without reading the data.

  For `folder`, the first image is opened; for `npz`, all but the images read.
  """
  return _find(name).peek(Where(data_dir, synthetic=synthetic))


@may_read('data_dir')
def peek_dtype(name: str, data_dir: str = '') -> str:
  """Return the dtype of the examples: 'uint8' of images, else of inputs."""
  return _find(name).dtype(Where(data_dir))


@may_read('data_dir')
def is_available(name: str, data_dir: str = '') -> bool:
  """Return whether `load_dataset` would find the data, without reading it."""
  return _find(name).available(Where(data_dir))


def _find(name: str) -> Source:
  check_known(
    'dataset',
    [name],
    expected='a known image set',
    choices=NAMES,
    cause='a misspelt name; own images go under the names `folder` and `npz`',
  )
  return SOURCES[name]

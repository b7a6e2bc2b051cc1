"""Load image sets by name, as uint8 arrays.

  digits         scikit-learn's 8x8 digits, part of the installation
  synthetic      generated, in any size (synthetic.py)
  cifar10, ...   arrays that experiments/prepare.py wrote (prepared_arrays.py),
                 or prepared by TensorFlow Datasets (tfds_reader.py)
  tiny_imagenet, folder    image files in class folders (image_folder.py)
  npz            the user's own arrays, and who holds them (npz_files.py)

Image files are decoded once; later runs read the decoded arrays (cache.py).
"""

import importlib.util
import pathlib
from collections.abc import Callable

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.paths import may_read
from fedjax_pfl.data import (
  image_folder,
  npz_files,
  prepared_arrays,
  tfds_reader,
)
from fedjax_pfl.data.cache import load_cached
from fedjax_pfl.data.images import (
  IMAGE,
  Dataset,
  Images,
  Shape,
  make_dataset,
)
from fedjax_pfl.data.synthetic import Synthetic, make_synthetic

BUILT_IN = {'digits': Shape((8, 8, 1), 10), 'synthetic': None}
FOLDERS = {'tiny_imagenet': Shape((64, 64, 3), 200), 'folder': None}
DEFAULT = Synthetic()
NPZ = 'npz'
NAMES = (*BUILT_IN, *tfds_reader.PREPARED, *FOLDERS, NPZ)


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
  shape = peek(name, data_dir, synthetic)
  if name == 'digits':
    return _load_digits()
  if name == 'synthetic':
    return make_synthetic(synthetic)
  if name == NPZ:
    return npz_files.load_npz(data_dir)
  if not is_available(name, data_dir):
    if fallback_to_synthetic:
      return _synthetic_instead(name, shape, data_dir)
    raise _absent(name, data_dir)
  if name in FOLDERS:
    dataset = _load_folder(name, data_dir, cache_dir, log_fn)
  else:
    dataset = _load_prepared(name, data_dir, cache_dir, log_fn)
  _check_shape(dataset, shape)
  return dataset


@may_read('data_dir')
def peek(
  name: str, data_dir: str = '', synthetic: Synthetic = DEFAULT
) -> Shape:
  """Return image shape and number of classes without reading the data.

  For `folder`, the first image is opened; for `npz`, all but the images read.
  """
  _check_name(name)
  if name == 'synthetic':
    return Shape(tuple(synthetic.image_shape), synthetic.num_classes)
  if name == NPZ:
    return npz_files.peek_npz(data_dir)
  if name == 'folder':
    return image_folder.peek_folder(
      image_folder.list_folder(_folder(name, data_dir))
    )
  return {**BUILT_IN, **tfds_reader.PREPARED, **FOLDERS}[name]


@may_read('data_dir')
def peek_dtype(name: str, data_dir: str = '') -> str:
  """Return the dtype of the examples: 'uint8' of images, else of inputs."""
  return npz_files.peek_dtype(data_dir) if name == NPZ else IMAGE


@may_read('data_dir')
def is_available(name: str, data_dir: str = '') -> bool:
  """Return whether `load_dataset` would find the data, without reading it."""
  _check_name(name)
  if name in BUILT_IN:
    return True
  if name == NPZ:
    return bool(npz_files.find_files(data_dir))
  root = tfds_reader.data_root(data_dir)
  if name in FOLDERS:
    return image_folder.find_folder(root) is not None
  arrays = prepared_arrays.has_arrays(name, root)
  return arrays or tfds_reader.find_prepared(name, data_dir) is not None


def _load_digits() -> Dataset:
  """Return the digits; every fifth image of a class is for testing.

  1,442 and 355 images, in the order of the file. Values 0 .. 16 are scaled to
  0 .. 255.
  """
  x, y = _read_digits()
  x = np.round(x * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
  is_test = np.zeros(len(y), bool)
  for label in range(10):
    is_test[np.flatnonzero(y == label)[4::5]] = True
  train, test = (
    Images(x[rows], y[rows].astype(np.int32)) for rows in (~is_test, is_test)
  )
  return make_dataset('digits', train, test, num_classes=10)


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
  """Return pixels [P, 64] and labels [P] from the file in scikit-learn.

  Without importing scikit-learn where possible: that takes two seconds.
  """
  package = importlib.util.find_spec('sklearn')
  for place in package.submodule_search_locations if package else ():
    file = pathlib.Path(place) / 'datasets' / 'data' / 'digits.csv.gz'
    if file.is_file():
      rows = np.loadtxt(file, delimiter=',')
      return rows[:, :-1], rows[:, -1].astype(int)
  from sklearn.datasets import load_digits

  return load_digits(return_X_y=True)


def _load_prepared(name, data_dir, cache_dir, log_fn) -> Dataset:
  root = tfds_reader.data_root(data_dir)
  if prepared_arrays.has_arrays(name, root):
    return prepared_arrays.read_arrays(name, root)
  place = tfds_reader.find_prepared(name, data_dir)

  def build() -> Dataset:
    log_fn(f'Reading {name} from {place}; later runs take a stored copy.')
    num_classes = tfds_reader.PREPARED[name].num_classes
    train, test = tfds_reader.read_prepared(name, place)
    return make_dataset(name, train, test, num_classes)

  key = tfds_reader.files_key(place.iterdir())
  return load_cached(name, key, build, cache_dir)


def _load_folder(name, data_dir, cache_dir, log_fn) -> Dataset:
  place = _folder(name, data_dir)
  listing = image_folder.list_folder(place)

  def build() -> Dataset:
    log_fn(f'Reading images from {place}; later runs take a stored copy.')
    train, test = image_folder.read_folder(listing)
    return make_dataset(name, train, test, len(listing.classes))

  files = [file for file, _ in listing.train + listing.test]
  files += place.glob('val/val_annotations.txt')
  try:
    key = tfds_reader.files_key(files, listing.classes)
  except FileNotFoundError as error:
    got = f'with {error.filename}, a link to a file that is not there'
    raise image_folder.not_a_folder(place, got) from error
  return load_cached(name, key, build, cache_dir)


def _folder(name: str, data_dir: str) -> pathlib.Path:
  place = image_folder.find_folder(tfds_reader.data_root(data_dir))
  if place is None:
    raise _absent(name, data_dir)
  return place


def _synthetic_instead(name: str, shape: Shape, data_dir: str) -> Dataset:
  note = (
    f'{name} is not in {tfds_reader.data_root(data_dir)}: synthetic images of '
    f'its shape replace it; accuracies are not those of {name}.'
  )
  return make_synthetic(Synthetic(*shape), note)


def _absent(name: str, data_dir: str) -> BadInput:
  if name in FOLDERS:
    root = tfds_reader.data_root(data_dir)
    can_download = name == 'tiny_imagenet'
    command = (
      tfds_reader.prepare_command(name, data_dir) if can_download else ''
    )
    return image_folder.not_a_folder(root, 'without train/', command)
  others = {*FOLDERS, NPZ}
  ready = [n for n in NAMES if n not in others and is_available(n, data_dir)]
  return tfds_reader.not_prepared(name, data_dir, choices=ready)


def _check_name(name: str) -> None:
  if name not in NAMES:
    raise bad_input(
      'dataset',
      got=name,
      expected='a known image set',
      choices=NAMES,
      cause='a misspelt name; own images go under the names `folder` and `npz`',
    )


def _check_shape(dataset: Dataset, shape: Shape) -> None:
  x, y = dataset.train
  highest = max(y.max(), dataset.test.y.max())
  fits = x.shape[1:] == dataset.test.x.shape[1:] == shape.image_shape
  if not fits or dataset.num_classes != shape.num_classes:
    got = f'{dataset.name} with images {x.shape[1:]}'
  elif not (min(y.min(), dataset.test.y.min()) >= 0 and highest < shape[1]):
    got = f'{dataset.name} with labels up to {highest}'
  else:
    return
  raise bad_input(
    'data_dir',
    got=got,
    expected=f'images {shape.image_shape} of {shape.num_classes} classes',
    cause='another data set, or another version of it, under this name',
  )

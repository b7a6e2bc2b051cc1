"""Sets that experiments/prepare.py or TensorFlow Datasets prepared.

  <data_dir>/<name>/arrays-v1/   prepare.py: the download as arrays
  <data_dir>/<name>/3.0.2/       tfds: decoded once, then a stored copy is read

A set is a line in PREPARED, with its transforms in transforms.py, and its
archives and their format in preparation/.
"""

import pathlib
import shlex

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.images import Dataset, Shape, Where, make_dataset
from fedjax_pfl.data.stored_arrays import (
  FORMAT,
  data_root,
  files_key,
  load_cached,
  read_entry,
)

PREPARED = {
  'cifar10': Shape((32, 32, 3), 10),
  'cifar100': Shape((32, 32, 3), 100),  # the fine labels
  'emnist/byclass': Shape((28, 28, 1), 62),
  'mnist': Shape((28, 28, 1), 10),
  'fashion_mnist': Shape((28, 28, 1), 10),
  'svhn_cropped': Shape((32, 32, 3), 10),  # without the split `extra`
  'tiny_imagenet': Shape((64, 64, 3), 200),
  # These say who holds an example. Those of texts are characters, each of which
  # has a label, or -1 for none.
  'shakespeare': Shape((80,), 100, 'int32', (80,)),
  'sent140': Shape((140,), 2, 'int32', (140,)),
  'femnist': Shape((28, 28, 1), 62),
}

# (training, test) examples, as tensorflow.org/datasets/catalog lists them; Tiny
# ImageNet is tested on its validation images.
NUM_EXAMPLES = {
  'cifar10': (50_000, 10_000),
  'cifar100': (50_000, 10_000),
  'emnist/byclass': (697_932, 116_323),
  'mnist': (60_000, 10_000),
  'fashion_mnist': (60_000, 10_000),
  'svhn_cropped': (73_257, 26_032),
  'tiny_imagenet': (100_000, 10_000),
}


def peek(where: Where) -> Shape:
  """Return what is known of the set, whether it is there or not."""
  return PREPARED[where.name]


def folder_of(name: str, root: pathlib.Path) -> pathlib.Path:
  """Return where the arrays of a set are, or would be."""
  return root / name / f'arrays-{FORMAT}'


def is_available(where: Where) -> bool:
  """Return whether the set was prepared."""
  return _is_ready(where.name, data_root(where.data_dir))


def _is_ready(name: str, root: pathlib.Path) -> bool:
  from fedjax_pfl.data import tfds_reader

  is_stored = folder_of(name, root).is_dir()
  return is_stored or tfds_reader.find_prepared(name, root) is not None


def load(where: Where) -> Dataset:
  """Return the image set; refuse one that is absent, damaged or another."""
  name, root = where.name, data_root(where.data_dir)
  if not is_available(where):
    ready = [one for one in PREPARED if _is_ready(one, root)]
    raise bad_input(
      'dataset',
      got=f'{name}, which {root / name} does not hold',
      expected=f'the arrays of experiments/prepare.py in {root / name}',
      choices=['digits', 'synthetic', *ready],
      cause='data that are elsewhere ($TFDS_DATA_DIR, or --config.data_dir='
      '...) or that were never prepared. Where there is a network, run: python '
      f'experiments/prepare.py {name} --data_dir={shlex.quote(str(root))}',
    )
  if folder_of(name, root).is_dir():
    dataset = read(name, root)
  else:
    dataset = _read_tfds(where, root)
  (x, y), number = dataset.train, dataset.num_classes
  found = Shape(x.shape[1:], number, x.dtype.name, y.shape[1:])
  if found != PREPARED[name]:
    raise bad_input(
      'data_dir',
      got=f'{name} with images {found}',
      expected=f'images {PREPARED[name]}',
      cause='another data set, or another version of it, under this name',
    )
  return dataset


def _read_tfds(where: Where, root: pathlib.Path) -> Dataset:
  """Return a set of TensorFlow Datasets, decoded once."""
  from fedjax_pfl.data import tfds_reader

  name, place = where.name, tfds_reader.find_prepared(where.name, root)

  def build() -> Dataset:
    where.log_fn(f'Reading {name} from {place}; later runs take a stored copy.')
    splits = tfds_reader.read_splits(name, place)
    return make_dataset(name, *splits, PREPARED[name].num_classes)

  key = files_key(place.iterdir())
  return load_cached(name.replace('/', '_'), key, build, where.cache_dir)


def read(name: str, root: pathlib.Path) -> Dataset:
  """Return the arrays; raise BadInput if they are damaged."""
  folder = folder_of(name, root)
  try:
    return read_entry(folder)
  except Exception as error:  # numpy, json and the disk raise a dozen kinds
    raise bad_input(
      'dataset',
      got=f'{name}, and while reading {folder}: {error}',
      expected='the arrays that experiments/prepare.py wrote',
      cause='an interrupted copy: delete the folder and prepare the set again',
    ) from error

"""Image sets that experiments/prepare.py downloaded and wrote as arrays.

  <data_dir>/<name>/arrays-v1/

A set is a line in PREPARED, with its transforms in transforms.py, and its
archives and their format in preparation/.
"""

import pathlib
import shlex

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.images import Dataset, Shape, Where
from fedjax_pfl.data.stored_arrays import FORMAT, data_root, read_entry

PREPARED = {
  'cifar10': Shape((32, 32, 3), 10),
  'cifar100': Shape((32, 32, 3), 100),  # the fine labels
  'emnist/byclass': Shape((28, 28, 1), 62),
  'mnist': Shape((28, 28, 1), 10),
  'fashion_mnist': Shape((28, 28, 1), 10),
  'svhn_cropped': Shape((32, 32, 3), 10),  # without the split `extra`
  'tiny_imagenet': Shape((64, 64, 3), 200),
}


def peek(where: Where) -> Shape:
  """Return image shape and number of classes, whether it is there or not."""
  return PREPARED[where.name]


def folder_of(name: str, root: pathlib.Path) -> pathlib.Path:
  """Return where the arrays of a set are, or would be."""
  return root / name / f'arrays-{FORMAT}'


def is_available(where: Where) -> bool:
  """Return whether the set was prepared."""
  return folder_of(where.name, data_root(where.data_dir)).is_dir()


def load(where: Where) -> Dataset:
  """Return the image set; refuse one that is absent, damaged or another."""
  name, root = where.name, data_root(where.data_dir)
  if not is_available(where):
    ready = [one for one in PREPARED if folder_of(one, root).is_dir()]
    raise bad_input(
      'dataset',
      got=f'{name}, which {root / name} does not hold',
      expected=f'the arrays of experiments/prepare.py in {root / name}',
      choices=['digits', 'synthetic', *ready],
      cause='data that are elsewhere ($TFDS_DATA_DIR, or --config.data_dir='
      '...) or that were never prepared. Where there is a network, run: python '
      f'experiments/prepare.py {name} --data_dir={shlex.quote(str(root))}',
    )
  dataset = read(name, root)
  found = Shape(dataset.train.x.shape[1:], dataset.num_classes)
  if found != PREPARED[name]:
    raise bad_input(
      'data_dir',
      got=f'{name} with images {found}',
      expected=f'images {PREPARED[name]}',
      cause='another data set, or another version of it, under this name',
    )
  return dataset


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

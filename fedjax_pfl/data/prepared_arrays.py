"""Image sets that experiments/prepare.py wrote: arrays beside those of tfds.

  <data_dir>/<name>/arrays-v1/   train_x.npy, train_y.npy, test_x.npy, ...

They are entries like those of the cache: mapped into memory, never decoded. The
arrays equal those that tfds_reader.py returns for the set, in the same order.
"""

import pathlib

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data import cache
from fedjax_pfl.data.images import Dataset

FOLDER = f'arrays-{cache.FORMAT}'


def arrays_folder(name: str, root: pathlib.Path) -> pathlib.Path:
  """Return where the arrays of a set are, or would be."""
  return root / name / FOLDER


def has_arrays(name: str, root: pathlib.Path) -> bool:
  return arrays_folder(name, root).is_dir()


def read_arrays(name: str, root: pathlib.Path) -> Dataset:
  """Return the image set; raise BadInput if its files are damaged."""
  folder = arrays_folder(name, root)
  try:
    return cache.read_entry(folder)
  except Exception as error:  # numpy, json and the disk raise a dozen kinds
    raise bad_input(
      'dataset',
      got=f'{name}, and while reading {folder}: {error}',
      expected='the arrays that experiments/prepare.py wrote',
      cause='an interrupted copy: delete the folder and prepare the set again',
    ) from error

"""The image sets by name: SOURCES says of each which file reads it.

digits         scikit-learn's 8x8 digits, part of the installation (digits.py)
digits_domains five domains made of them (digits_domains.py)
synthetic      generated, in any size (synthetic.py)
cifar10, ...   arrays that experiments/prepare.py wrote, or files of TensorFlow
               Datasets (prepared.py)
folder         image files in folders of classes and clients (image_folder.py)
npz            the user's own arrays, and who holds them (npz_files.py)
clients        a folder of write_clients, mapped into memory (clients_folder.py)
pfllib         a folder of PFLlib or HtFLlib (pfllib_folder.py)
table          a CSV or Parquet file of the user's own (table.py)
heart          patients of four hospitals, part of the installation (heart.py)
"""

import importlib
from collections.abc import Callable
from types import ModuleType

from fedjax_pfl.core.errors import may_read
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.data import prepared
from fedjax_pfl.data.images import (
  IMAGE,
  Dataset,
  Shape,
  Synthetic,
  Table,
  Where,
)
from fedjax_pfl.data.prepared import PREPARED
from fedjax_pfl.data.stored_arrays import data_root

DEFAULT, NO_TABLE = Synthetic(), Table()
# The file of this room that reads a set: its functions `peek` (shapes, number
# of classes and of clients, without reading images) and `load`.
SOURCES = {
  'digits': 'digits',
  'digits_domains': 'digits_domains',
  'synthetic': 'synthetic',
  **dict.fromkeys(PREPARED, 'prepared'),
  'folder': 'image_folder',
  'npz': 'npz_files',
  'clients': 'clients_folder',
  'pfllib': 'pfllib_folder',
  'table': 'table',
  'heart': 'heart',
}
NAMES = tuple(SOURCES)
OWN = 'folder', 'npz', 'clients', 'pfllib', 'table'  # names of many data sets


@may_read('data_dir')
def load_dataset(
  name: str,
  *,
  data_dir: str = '',
  synthetic: Synthetic = DEFAULT,
  fallback_to_synthetic: bool = False,
  log_fn: Callable[[str], None] = lambda _: None,
  image_size: int = 0,
  table: Table = NO_TABLE,
) -> Dataset:
  """Return an image set by its name.

  Args:
    name: one of `NAMES` in data/datasets.py.
    data_dir: the folder of the data; '' is $TFDS_DATA_DIR, or else
      ~/tensorflow_datasets. 'digits' and 'synthetic' need none; for 'npz' it is
      the file, for 'folder' it may be a .csv.
    synthetic: shape, classes and sizes of the set 'synthetic'.
    fallback_to_synthetic: whether synthetic images of the same shape replace a
      set that is not there; the note of the result then says it.
    log_fn: is called with a line of text before images are decoded.
    image_size: the images of 'folder' are scaled to so many pixels a side when
      they are decoded, so that they may be of unlike sizes; 0: as they are.
    table: the columns of 'table' that are no features.

  Returns:
    Dataset with train.x and test.x [P, H, W, ch] uint8 (of 'npz' they may be
    inputs of any shape), train.y and test.y [P] int32 ([P, L] of
    tokens), num_classes, a fingerprint of the content, and the clients that
    hold the examples where they are known.

  >>> dataset = pfl.load_dataset('digits')
  >>> dataset.train.x.shape, dataset.test.x.shape, dataset.num_classes
  ((1442, 8, 8, 1), (355, 8, 8, 1), 10)
  """
  source = _find(name)
  where = Where(name, data_dir, synthetic, log_fn, image_size, table)
  shape = source.peek(where)
  can_stand_in = fallback_to_synthetic and shape.dtype == IMAGE
  if not can_stand_in or is_available(name, data_dir):
    return source.load(where)
  return load_dataset('synthetic', synthetic=Synthetic(*shape[:2]))._replace(
    note=f'{name} is not in {data_root(data_dir)}: synthetic images of its '
    f'shape replace it; accuracies are not those of {name}.'
  )


@may_read('data_dir')
def peek(
  name: str,
  data_dir: str = '',
  synthetic: Synthetic = DEFAULT,
  image_size: int = 0,
  table: Table = NO_TABLE,
) -> Shape:
  """Return what is known of a set of which few data are read, if any."""
  where = Where(name, data_dir, synthetic, side=image_size, table=table)
  return _find(name).peek(where)


@may_read('data_dir')
def is_available(name: str, data_dir: str = '') -> bool:
  """Return whether a set is here that `peek` knows without its files, too."""
  where = Where(name, data_dir)
  return name not in PREPARED or prepared.is_available(where)


def _find(name: str) -> ModuleType:
  """Return the file that reads this set; it alone is imported."""
  cause = 'a misspelt name; own images go under the names `folder` and `npz`'
  one_of(NAMES, 'a known image set', cause).check('dataset', name)
  return importlib.import_module(f'fedjax_pfl.data.{SOURCES[name]}')

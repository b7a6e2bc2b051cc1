"""Write a partition for other programs: as PFLlib's folder, or as indices.

pfllib    the folder of pfllib_folder.py, with the examples themselves
indices   one JSON: of every part, such as train and test, a list of rows for
          each client; and what the rows are of
"""

import os
import pathlib
from collections.abc import Mapping

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.data import pfllib_folder
from fedjax_pfl.data.images import SPLITS, Dataset
from fedjax_pfl.data.partition import OF_OWN, fingerprint
from fedjax_pfl.data.partitions import Indices

FORMATS = 'pfllib', 'indices'
OF = {'split': 'train', 'merged': 'train and test as one, as train rows are'}


def write(
  format: str,
  out: str | os.PathLike,
  dataset: Dataset,
  division: Mapping[str, Indices],
  test_partition: str,
) -> pathlib.Path:
  """Write the rows of every client to `out`, which is new; return it.

  With `split` all rows are those of the training set; with `merged` those of
  both sets as one, the training set first.
  """
  one_of(FORMATS, 'a format of partitions').check('format', format)
  is_own = test_partition in OF_OWN
  pools = [dataset.train, dataset.train if is_own else dataset.test]
  if format == 'pfllib':
    _check_pfllib(dataset, division)
  with atomic_files.made_whole(out) as path:
    if format == 'indices':
      atomic_files.write_json(path, _as_json(dataset, division, test_partition))
    else:
      pfllib_folder.write(path, pools, dataset.num_classes, division)
  return pathlib.Path(out)


def _as_json(dataset: Dataset, division: Mapping, tests: str) -> dict:
  """Return the rows of every part, and what identifies their order."""
  return {
    'dataset': dataset.name,
    'images': dataset.fingerprint,
    'num_classes': dataset.num_classes,
    'test_rows_are_of': OF.get(tests, 'test'),
    'partition': {name: fingerprint(rows) for name, rows in division.items()},
    **{name: [own.tolist() for own in rows] for name, rows in division.items()},
  }


def _check_pfllib(dataset: Dataset, division: Mapping[str, Indices]) -> None:
  """Refuse what that folder cannot hold."""
  wrong = ''
  if more := [name for name in division if name not in SPLITS]:
    wrong = f'examples for {", ".join(more)}'
  elif dataset.train.y.ndim > 1:
    wrong = f'{dataset.name}, whose tokens have a label each'
  if wrong:
    raise bad_input(
      'format',
      got=f'pfllib for {wrong}',
      expected='training and test examples of one label each',
      choices=['format=indices', 'validation_fraction=0', 'unseen_clients=0'],
      cause='a partition that PFLlib has no place for',
    )

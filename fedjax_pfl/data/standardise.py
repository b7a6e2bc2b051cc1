"""Fill the gaps of a table, and standardise its columns, by training rows.

  z = (x - mean) / std,   ddof 1; a gap is the median of its column before

of the training rows of all clients that take part in rounds (`all`), or of each
client's own (`client`). Rows that are kept for testing or for choosing, and
those of clients who come later, count for none of these numbers but those of
such a client itself. A column that does not vary among the rows becomes 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.images import Dataset, Images

STANDARDISE = ('all', 'client', 'none')
PRIVATE = (
  'standardise=all: medians, means and deviations of columns are of all '
  "clients' rows, without noise and outside epsilon. standardise=client shares "
  'none.'
)


class Scale(NamedTuple):
  """Three numbers of each column [D]."""

  median: np.ndarray
  mean: np.ndarray
  std: np.ndarray

  def applied(self, x: np.ndarray) -> np.ndarray:
    """Return rows without gaps [n, D], standardised."""
    filled = np.where(np.isnan(x), self.median, x)
    return (filled - self.mean) / self.std


def scale_of(x: np.ndarray, is_scaled: bool = True) -> Scale:
  """Return the scale of rows [n, D], of float64; or one that fills alone.

  >>> scale_of(np.array([[1.0], [np.nan], [3.0]])).mean.tolist()
  [2.0]
  """
  x = np.array(x, np.float64)
  known = ~np.isnan(x)
  empty = ~known.any(0) if len(x) else np.ones(x.shape[1], bool)
  x = np.where(known, x, np.nan)
  x = np.where(empty, 0, x) if len(x) else np.zeros((1, x.shape[1]))
  median = np.nanmedian(x, axis=0)
  if not is_scaled:
    return Scale(median, np.zeros_like(median), np.ones_like(median))
  filled = np.where(np.isnan(x), median, x)
  std = filled.std(0, ddof=1) if len(filled) > 1 else np.zeros(x.shape[1])
  return Scale(median, filled.mean(0), np.where(std > 0, std, np.inf))


def standardised(
  dataset: Dataset,
  how: str,
  division: dict[str, Sequence[np.ndarray]],
  tests_are_own: bool,
) -> Dataset:
  """Return the data set without gaps, standardised; one without columns stays.

  Args:
    dataset: with gaps.
    how: one of STANDARDISE.
    division: the rows of every client by part; see dealing.py.
    tests_are_own: whether tests are rows of the training set.
  """
  if not dataset.columns:
    return dataset
  x, rows = dataset.train.x, np.concatenate([*division['train']]).astype(int)
  scales = [scale_of(x[rows], how != 'none')]
  pools = [scales[0].applied(part.x) for part in (dataset.train, dataset.test)]
  if how == 'client':
    _check_owned(division, tests_are_own)
    scales = [scale_of(x[own]) for own in division['train']]
    for name, clients in division.items():
      who = 'unseen_' if name.startswith('unseen_') else ''
      side = int(name.endswith('test') and not tests_are_own)
      given = (dataset.train, dataset.test)[side].x
      trains = division[f'{who}train']
      for rows, own in zip(clients, trains, strict=True):
        pools[side][rows] = scale_of(x[own]).applied(given[rows])
  train, test = (
    Images(pool.astype(np.float32), split.y)
    for pool, split in zip(pools, (dataset.train, dataset.test), strict=True)
  )
  return dataset._replace(train=train, test=test, scales=scales)


def _check_owned(division, tests_are_own: bool) -> None:
  """Refuse a row of two clients, which would have two scales."""
  sides = [[], []]
  for name, clients in division.items():
    is_test = name.endswith('test') and not tests_are_own
    sides[is_test] += clients
  for rows in map(np.concatenate, filter(None, sides)):
    if len(np.unique(rows)) < len(rows):
      raise bad_input(
        'standardise',
        got='client, with rows that several clients hold',
        expected='rows of one client each',
        choices=['standardise=all', 'test_partition=same'],
      )

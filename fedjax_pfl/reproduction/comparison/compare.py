"""Our number beside the published one, and whether both agree.

  difference = ours - published
  agree      = |difference| <= 2 sqrt(e_ours^2 + e_published^2)

The standard error e of a mean:
  one run          deviation over its clients (ddof 0) / sqrt(K): what another
                   sample of clients would change; seeds may add to it. Of one
                   number on n test images: sqrt(m (100 - m) / n)
  several runs     deviation over the seeds (ddof 1) / sqrt(S); of two seeds,
                   whose deviation may be small by chance, not below that of
                   their clients or images
  last ten rounds  their deviation, undivided: they are one run, not ten
  none published   0
  none of ours     agreement is unknown
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.reproduction.cells import Cell, Published

SEEDS_OF_FEDCONCAT = 3  # of its Table 1
MIN_SEEDS = 3  # whose deviation is an error by itself


class OurNumber(NamedTuple):
  """Our number for a cell, over the seeds that were run."""

  mean: float
  std: float | None  # over clients, mean of the seeds; None: no clients
  error: float | None  # standard error of the mean; None: unknown
  seeds: tuple[int, ...]


class Comparison(NamedTuple):
  cell: Cell
  ours: OurNumber | None  # None: not run
  difference: float | None
  tolerance: float | None  # twice the combined standard error
  agrees: bool | None  # None: not run, or our error is unknown
  diverged: tuple[int, ...] = ()  # the seeds whose training diverged
  kept: tuple[int, ...] = ()  # the seeds whose run directory is gone


def over_seeds(
  means: Sequence[float],
  stds: Sequence[float | None],
  size: int,
  seeds: Sequence[int],
) -> OurNumber:
  """Return the number of a cell from the summaries of its seeds.

  `size` is the number of clients or, without a std, of test images; 0: unknown.

  >>> over_seeds([80.0, 82.0], [7.0, 9.0], 100, [0, 1])
  OurNumber(mean=81.0, std=8.0, error=1.0, seeds=(0, 1))
  """
  known = [std for std in stds if std is not None]
  std = float(np.mean(known)) if known else None
  errors = []
  if len(means) > 1:
    errors.append(np.std(means, ddof=1) / math.sqrt(len(means)))
  if len(means) < MIN_SEEDS and size:
    squares = (
      mean * (100 - mean) if std is None else std**2
      for mean, std in zip(means, stds, strict=True)
    )
    errors.append(math.sqrt(sum(squares) / size) / len(means))
  error = float(max(errors)) if errors and (size or len(means) > 2) else None
  return OurNumber(float(np.mean(means)), std, error, tuple(seeds))


def published_error(published: Published) -> float | None:
  """Return the standard error of a printed mean; None if none is known."""
  if published.std is None:
    return None
  if published.paper == 'fedbabu':  # over the clients of one run
    return published.std / math.sqrt(published.num_clients or 1)
  if (published.paper, published.table) == ('fedconcat', '1'):
    return published.std / math.sqrt(SEEDS_OF_FEDCONCAT)
  return published.std  # over the last ten rounds of one run


def compare(cell: Cell, ours: OurNumber | None) -> Comparison:
  """Return the cell with our number beside the printed one."""
  if ours is None:
    return Comparison(cell, None, None, None, None)
  difference = ours.mean - cell.published.mean
  if ours.error is None:
    return Comparison(cell, ours, difference, None, None)
  tolerance = 2 * math.hypot(ours.error, published_error(cell.published) or 0)
  return Comparison(
    cell, ours, difference, tolerance, abs(difference) <= tolerance
  )

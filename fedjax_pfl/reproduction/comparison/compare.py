"""Our number beside the published one, and whether both agree.

  difference = ours - published
  agree      = |difference| <= 2 sqrt(e_ours^2 + e_published^2)

The standard error e of a mean:
  several runs     deviation over the seeds (ddof 1) / sqrt(S)
  one run          deviation over its clients (ddof 0) / sqrt(K): what another
                   sample of clients would change; seeds may add to it
  last ten rounds  their deviation, undivided: they are one run, not ten
  none published   0; if ours is unknown, too, agreement is unknown
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.reproduction.cells import Cell, Published

SEEDS_OF_FEDCONCAT = 3  # of its Table 1


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
  agrees: bool | None  # None: not run, or no error is known at all
  diverged: tuple[int, ...] = ()  # the seeds whose training diverged
  kept: tuple[int, ...] = ()  # the seeds whose run directory is gone


def over_seeds(
  means: Sequence[float],
  stds: Sequence[float | None],
  num_clients: int,
  seeds: Sequence[int],
) -> OurNumber:
  """Return the number of a cell from the summaries of its seeds.

  >>> over_seeds([80.0, 82.0], [7.0, 9.0], 100, [0, 1])
  OurNumber(mean=81.0, std=8.0, error=1.0, seeds=(0, 1))
  """
  known = [std for std in stds if std is not None]
  std = float(np.mean(known)) if known else None
  error = None
  if len(means) > 1:
    error = float(np.std(means, ddof=1) / math.sqrt(len(means)))
  elif std is not None:
    error = std / math.sqrt(max(num_clients, 1))
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
  errors = [ours.error, published_error(cell.published)]
  if errors == [None, None]:
    return Comparison(cell, ours, difference, None, None)
  tolerance = 2 * math.hypot(*(error or 0.0 for error in errors))
  return Comparison(
    cell, ours, difference, tolerance, abs(difference) <= tolerance
  )

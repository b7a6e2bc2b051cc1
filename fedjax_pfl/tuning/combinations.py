"""The settings of a sweep: every combination of a grid, or random ones."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

DIGITS = 3  # of a random number, so that it can be typed

Combination = dict[str, str]  # {'learning_rate': '0.1'}, as on a command line


class Range(NamedTuple):
  """Where a number is drawn: on a log scale if both ends are positive."""

  low: float
  high: float
  is_whole: bool  # whether only whole numbers are meant

  def at(self, share: float) -> str:
    """Return the number that lies at this share of the range, from 0 to 1."""
    low, high = self.low, self.high
    if low > 0:
      low, high = math.log(low), math.log(high)
    value = low + share * (high - low)
    value = math.exp(value) if self.low > 0 else value
    return str(round(value)) if self.is_whole else f'{value:.{DIGITS}g}'


def combine(
  grid: Mapping[str, Sequence[str]], ranges: Mapping[str, Range], number: int
) -> list[Combination]:
  """Return each combination of the grid, with `number` random draws each.

  >>> combine({'hp.mu': ['0.1', '1']}, {}, 0)
  [{'hp.mu': '0.1'}, {'hp.mu': '1'}]

  The draws are the first of one sequence: a larger number adds to them.
  """
  rows = [
    dict(zip(grid, values, strict=True))
    for values in itertools.product(*grid.values())
  ]
  if not ranges:
    return rows
  draws = draw(ranges, number)
  return [row | drawn for row in rows for drawn in draws]


def draw(ranges: Mapping[str, Range], number: int) -> list[Combination]:
  """Return random combinations, the same ones whenever they are asked for."""
  shares = np.random.default_rng(0).random((number, len(ranges)))
  return [
    {
      name: one.at(float(share))
      for (name, one), share in zip(ranges.items(), row, strict=True)
    }
    for row in shares
  ]

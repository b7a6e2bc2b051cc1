"""The settings of a sweep: what --grid, --range and --random ask for."""

import ast
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input

GRIDS = ('learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)')
RANGES = ('learning_rate=0.001..0.3', 'local_epochs=1..10')
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


# ---- From flags to fields and values -----------------------------------------


def parse_grids(texts: Sequence[str]) -> dict[str, list[str]]:
  """Return {field: its values}, each once and still as text.

  >>> parse_grids(['learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)'])
  {'learning_rate': ['0.1', '0.03'], 'finetune.epochs': ['(1,5)', '(5,)']}
  """
  grids: dict[str, list[str]] = {}
  for text in texts:
    field, _, values = text.partition('=')
    words = [word.strip() for word in re.split(r',(?![^(]*\))', values)]
    if not field or not all(words):
      raise _bad_text('--grid', text, 'a field and its values', GRIDS)
    _check_field('--grid', field, grids)
    grids[field] = list(dict.fromkeys(words))
  return grids


def parse_ranges(texts: Sequence[str]) -> dict[str, Range]:
  """Return {field: range}; it is of whole numbers if both ends are.

  >>> parse_ranges(['local_epochs=1..10'])
  {'local_epochs': Range(low=1, high=10, is_whole=True)}
  """
  ranges: dict[str, Range] = {}
  for text in texts:
    field, _, ends = text.partition('=')
    low, _, high = (_number(end) for end in ends.partition('..'))
    if not field or low is None or high is None or not low < high:
      expected = 'a field, and two numbers of which the first is smaller'
      raise _bad_text('--range', text, expected, RANGES)
    _check_field('--range', field, ranges)
    ranges[field] = Range(low, high, type(low) is type(high) is int)
  return ranges


def check_together(
  grids: dict[str, list[str]], ranges: dict[str, Range], number: int | None
) -> None:
  """Refuse a sweep of nothing, and ranges and numbers that miss each other."""
  both = sorted({*grids} & {*ranges})
  if both:
    raise bad_input(
      '--range',
      got=', '.join(both),
      expected='fields that have no --grid',
      cause='one field that is asked for twice',
    )
  if (number is None) != (not ranges):
    raise bad_input(
      '--random',
      got=number,
      expected='a number of combinations together with --range',
      choices=[f'--random=20 --range {RANGES[0]}', f'--grid {GRIDS[0]}'],
      cause='one of two flags was forgotten',
    )
  if not grids and not ranges:
    raise bad_input(
      'sweep',
      got='neither --grid nor --range',
      expected='a field to vary',
      choices=[f'--grid {GRIDS[0]}', f'--random=20 --range {RANGES[0]}'],
      cause='a single run was meant: experiments/main.py',
    )


def _number(text: str) -> int | float | None:
  try:
    value = ast.literal_eval(text.strip())
  except (ValueError, SyntaxError):
    return None
  return value if type(value) in (int, float) else None


def _check_field(flag: str, field: str, known: dict) -> None:
  if field == 'seed':
    raise bad_input(
      flag,
      got=field,
      expected='a field of the config that is no seed',
      choices=['--seeds=3'],
      cause='seeds are repeated for every combination',
    )
  if field in known:
    raise bad_input(
      flag,
      got=field,
      expected='every field once',
      cause='values of one field in two flags: write them behind one',
    )


def _bad_text(
  flag: str, text: str, expected: str, choices: Sequence[str]
) -> BadInput:
  return bad_input(
    flag,
    got=text,
    expected=expected,
    choices=choices,
    cause='a typing error, a value that is missing, or a comma too many',
  )

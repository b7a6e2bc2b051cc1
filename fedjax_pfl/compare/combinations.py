"""The settings of a sweep: what --grid, --range and --random ask for."""

import ast
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule

MOST = Rule(lambda size: size <= 10_000, '10,000 or fewer in all')
DIGITS = 3  # of a random number, so that it can be typed
ONE_GRID = '--grid learning_rate=0.1,0.03'
ONE_RANGE = '--random=20 --range learning_rate=0.001..0.3'

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
    if self.is_whole:
      return str(round(value))
    # Digits of the number, or of the range where that is narrower.
    size = min(abs(value), self.high - self.low) or 1
    places = DIGITS - 1 - math.floor(math.log10(size))
    value = min(max(round(value, places), self.low), self.high)
    return f'{value:.12g}'


def parse_seeds(text: str) -> range:
  """Return the seeds that --seeds asks for.

  >>> parse_seeds('3'), parse_seeds('3:6')
  (range(0, 3), range(3, 6))
  """
  number, seeds = '([0-9]{1,9})', range(0)
  if span := re.fullmatch(f'({number}:)?{number}', text):
    seeds = range(int(span[2] or 0), int(span[3]))
  elif re.fullmatch(f'{number}(,{number})+', text):  # 3,4,5
    first, *more = map(int, text.split(','))
    seeds = range(first, first + 1 + len(more))
    seeds = seeds if [first, *more] == [*seeds] else range(0)
  if not seeds:
    raise bad_input(
      '--seeds',
      got=text,
      expected='the number of seeds, from 0 on, or the first and the one after '
      'the last',
      choices=['--seeds=3', '--seeds=3:6, which are 3, 4 and 5'],
    )
  return seeds


def combine(
  grid: Mapping[str, Sequence[str]], ranges: Mapping[str, Range], number: int
) -> list[Combination]:
  """Return each combination of the grid, with `number` random draws each.

  >>> combine({'hp.mu': ['0.1', '1']}, {}, 0)
  [{'hp.mu': '0.1'}, {'hp.mu': '1'}]

  The draws of a range are the first of one sequence: a larger number adds to
  them, and a range more leaves those before it as they are. Each combination is
  there once: of few whole numbers there are fewer draws.
  """
  size = math.prod(map(len, grid.values())) * (number if ranges else 1)
  MOST.check('settings', size)
  products = itertools.product(*grid.values())
  rows = [dict(zip(grid, values, strict=True)) for values in products]
  if not ranges:
    return rows
  shares = [
    np.random.default_rng(at).random(number) for at in range(len(ranges))
  ]
  draws = [
    {
      name: span.at(float(share))
      for (name, span), share in zip(ranges.items(), drawn, strict=True)
    }
    for drawn in zip(*shares, strict=True)
  ]
  each_once = {tuple(draw.values()): draw for draw in draws}.values()
  return [row | draw for row in rows for draw in each_once]


def make_candidates(
  methods: Sequence[str],
  grids: Mapping[str, Sequence[str]],
  ranges: Mapping[str, Range],
  grids_of: Mapping[str, Mapping[str, Sequence[str]]],
  ranges_of: Mapping[str, Mapping[str, Range]],
  number: int,
) -> dict[str, tuple[dict[str, Any], ...]]:
  """Return {method: settings}: of all grids, with `number` draws of ranges.

  `grids_of` and `ranges_of` are of one method each. Draws of the ranges of all
  methods are the same for each method.
  """
  candidates = {}
  for name in methods:
    spans = {**ranges, **ranges_of.get(name, {})}
    rows = combine({**grids, **grids_of.get(name, {})}, spans, number)
    candidates[name] = tuple(
      {field: _typed(row[field], spans.get(field)) for field in row}
      for row in rows
    )
  return candidates


def _typed(text: str, drawn: Range | None) -> Any:
  if drawn is not None:
    return int(text) if drawn.is_whole else float(text)
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def parse_grids(texts: Sequence[str]) -> dict[str, list[str]]:
  """Return {field: its values}, each once and still as text.

  >>> parse_grids(['learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)'])
  {'learning_rate': ['0.1', '0.03'], 'finetune.epochs': ['(1,5)', '(5,)']}
  """
  examples = 'learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)'
  expected = 'a field and its values'
  return _parse('--grid', texts, _read_values, expected, examples)


def parse_ranges(texts: Sequence[str]) -> dict[str, Range]:
  """Return {field: range}; it is of whole numbers if both ends are.

  >>> parse_ranges(['local_epochs=1..10'])
  {'local_epochs': Range(low=1, high=10, is_whole=True)}
  """
  examples = 'learning_rate=0.001..0.3', 'local_epochs=1..10'
  expected = 'a field, and two numbers of which the first is smaller'
  return _parse('--range', texts, _read_range, expected, examples)


def _read_values(text: str) -> list[str] | None:
  values = [value.strip() for value in re.split(r',(?![^(]*\))', text)]
  return list(dict.fromkeys(values)) if all(values) else None


def _read_range(text: str) -> Range | None:
  try:
    low, high = (ast.literal_eval(end.strip()) for end in text.split('..'))
  except (ValueError, SyntaxError, TypeError):
    return None
  kinds = {type(low), type(high)}
  if not kinds <= {int, float} or not -math.inf < low < high < math.inf:
    return None
  return Range(low, high, kinds == {int})


def _parse(
  flag: str,
  texts: Sequence[str],
  read_fn: Callable[[str], Any],
  expected: str,
  choices: Sequence[str],
) -> dict[str, Any]:
  """Return {field: what is read}; refuse a field twice, and the seed."""
  values: dict[str, Any] = {}
  for text in texts:
    field, _, rest = text.partition('=')
    value = read_fn(rest)
    if not field or value is None:
      raise bad_input(flag, got=text, expected=expected, choices=choices)
    check_fixed([field], values, flag)
    values[field] = value
  return values


def check_fixed(
  fields: Iterable[str], varied: Collection[str], flag: str = '--config'
) -> None:
  """Refuse the seed, and what varies, among the fields that all share."""
  for field in fields:
    if field in varied or field == 'seed':
      raise bad_input(
        flag,
        got=field,
        expected='every field once, and no seed',
        choices=['all values behind one flag', '--seeds=3'],
      )


def check_together(
  grids: Mapping[str, Any], ranges: Mapping[str, Any], number: int | None
) -> None:
  """Refuse a sweep of nothing, and ranges and numbers that miss each other."""
  if both := sorted({*grids} & {*ranges}):
    expected = 'fields that have no --grid'
    raise bad_input('--range', got=', '.join(both), expected=expected)
  if (number is None) != (not ranges):
    raise bad_input(
      '--random',
      got=number,
      expected='a number of combinations together with --range',
      choices=[ONE_RANGE, ONE_GRID],
    )
  if not grids and not ranges:
    raise bad_input(
      '--grid',
      got='none, and no --range',
      expected='a field to vary',
      choices=[ONE_GRID, ONE_RANGE],
    )

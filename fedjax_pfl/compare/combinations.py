"""The settings of a sweep: what --grid, --range and --random ask for."""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input, refuse
from fedjax_pfl.core.rules import Rule, one_of
from fedjax_pfl.core.user_code import without_digest

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


Values = Sequence[str] | Range  # of a field
Varied = Mapping[str, Values]


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


def combine(varied: Varied, number: int) -> list[Combination]:
  """Return each combination of values, with `number` draws of ranges each.

  >>> combine({'hp.mu': ['0.1', '1']}, 0)
  [{'hp.mu': '0.1'}, {'hp.mu': '1'}]

  The draws of a range are the first of one sequence: a larger number adds to
  them, and a range more leaves those before it as they are. Each combination is
  there once: of few whole numbers there are fewer draws.
  """
  ranges = {name: x for name, x in varied.items() if isinstance(x, Range)}
  grid = {name: varied[name] for name in varied if name not in ranges}
  size = math.prod(map(len, grid.values())) * (number if ranges else 1)
  MOST.check('settings', size)
  products = itertools.product(*grid.values())
  rows = [dict(zip(grid, values, strict=True)) for values in products]
  if not ranges:
    return rows
  columns = []
  for at, span in enumerate(ranges.values()):
    shares = np.random.default_rng(at).random(number).tolist()
    columns.append([span.at(share) for share in shares])
  draws = dict.fromkeys(zip(*columns, strict=True))
  return [
    row | dict(zip(ranges, draw, strict=True)) for row in rows for draw in draws
  ]


def make_candidates(
  methods: Sequence[str], varied_of: Mapping[str, Varied], number: int
) -> dict[str, tuple[dict[str, Any], ...]]:
  """Return {method: settings}, with `number` draws of ranges.

  What varies of all methods is `varied_of['']`: its draws are the same for each
  of them. A method may have more, by its name without a digest.
  """
  candidates = {}
  for name in methods:
    varied = {**varied_of[''], **varied_of.get(without_digest(name), {})}
    candidates[name] = tuple(
      {field: _typed(text, varied[field]) for field, text in row.items()}
      for row in combine(varied, number)
    )
  return candidates


def _typed(text: str, drawn: Values) -> Any:
  if isinstance(drawn, Range):
    return int(text) if drawn.is_whole else float(text)
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def parse(
  grids: Sequence[str],
  ranges: Sequence[str],
  number: int | None,
  fixed: Iterable[str] = (),
  methods: Sequence[str] = (),
) -> dict[str, dict[str, Values]]:
  """Return {method: {field: its values, as text, or its range}}.

  '' are all methods; 'ditto:hp.lam=1,2' is of one of `methods`. A range is of
  whole numbers if both ends are. Refused: a field twice, the seed, what is
  `fixed` for all, nothing that varies, ranges without a number of draws.

  >>> parse(['learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)'], [], None)
  {'': {'learning_rate': ['0.1', '0.03'], 'finetune.epochs': ['(1,5)', '(5,)']}}
  >>> parse([], ['local_epochs=1..10'], 3)
  {'': {'local_epochs': Range(low=1, high=10, is_whole=True)}}
  """
  names = [*map(without_digest, methods)]
  varied_of: dict[str, dict[str, Values]] = {'': {}}
  asked = [*(('--grid', x) for x in grids), *(('--range', x) for x in ranges)]
  for flag, text in asked:
    field, equals, rest = text.partition('=')
    method = ''
    if methods and equals and ':' in field:
      method, _, field = field.rpartition(':')
      one_of(names, 'a method of --methods').check(flag, method)
    read_fn, expected, choices = READERS[flag]
    values = read_fn(rest)
    if not field or values is None:
      raise bad_input(flag, got=text, expected=expected, choices=choices)
    varied = varied_of.setdefault(method, {})
    _check_fixed([field], varied, flag)
    varied[field] = values
  _check_fixed(fixed, varied_of[''], '--config')
  every = itertools.chain(*(varied.values() for varied in varied_of.values()))
  draws = any(isinstance(values, Range) for values in every)
  is_empty = not varied_of['']
  both = 'a number of combinations together with --range'
  refuse(
    (draws == (number is None), '--random', number, both, ONE_RANGE, ONE_GRID),
    (is_empty, '--grid', 'none', 'a field to vary', ONE_GRID, ONE_RANGE),
  )
  return varied_of


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


READERS = {  # of a flag: also what is expected, and examples
  '--grid': (
    _read_values,
    'a field and its values',
    ('learning_rate=0.1,0.03', 'finetune.epochs=(1,5),(5,)'),
  ),
  '--range': (
    _read_range,
    'a field, and two numbers of which the first is smaller',
    ('learning_rate=0.001..0.3', 'local_epochs=1..10'),
  ),
}


def _check_fixed(fields: Iterable[str], varied: Varied, flag: str) -> None:
  """Refuse the seed, and what varies already."""
  for field in fields:
    if field in varied or field == 'seed':
      raise bad_input(
        flag,
        got=field,
        expected='every field once, and no seed',
        choices=['all values behind one flag', '--seeds=3'],
      )

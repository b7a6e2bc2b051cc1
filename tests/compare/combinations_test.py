"""What --grid, --range and --random ask for, and how mistakes are refused."""

import math

import pytest
from helpers import refused

from fedjax_pfl.compare.combinations import (
  Range,
  check_together,
  combine,
  parse_grids,
  parse_ranges,
)


def test_every_combination_of_a_grid():
  grids = parse_grids(
    ['learning_rate=0.1, 0.03,0.1', 'lr_milestones=(),(0.5,)']
  )
  assert combine(grids, {}, 0) == [
    {'learning_rate': rate, 'lr_milestones': drops}
    for rate in ('0.1', '0.03')
    for drops in ('()', '(0.5,)')
  ]


def test_random_numbers_lie_in_their_ranges():
  """Evenly on a log scale where both ends are positive."""
  ranges = parse_ranges(
    ['learning_rate=0.001..1', 'hp.mu=0.0..1', 'local_epochs=1..8']
  )
  assert ranges['local_epochs'] == Range(1, 8, True)
  rows = combine({}, ranges, 400)
  assert rows == combine({}, ranges, 500)[:400]  # a larger number adds to them
  first = {'learning_rate': ranges['learning_rate']}
  alone = [row['learning_rate'] for row in combine({}, first, 20)]
  assert alone == [row['learning_rate'] for row in rows[:20]]
  rates = [math.log10(float(row['learning_rate'])) for row in rows]
  assert min(rates) >= -3 and max(rates) <= 0
  assert sum(rates) / 400 == pytest.approx(-1.5, abs=0.15)
  mus = [float(row['hp.mu']) for row in rows]
  assert sum(mus) / 400 == pytest.approx(0.5, abs=0.05)
  assert {row['local_epochs'] for row in rows} == {*map(str, range(1, 9))}
  grids = {'a': ['1', '2']}
  assert combine(grids, ranges, 3)[3:] == [
    {'a': '2', **row} for row in rows[:3]
  ]
  narrow = combine({}, parse_ranges(['lr_decay=0.995..0.9999']), 20)
  decays = {float(row['lr_decay']) for row in narrow}
  assert len(decays) > 15 and 0.995 <= min(decays) <= max(decays) <= 0.9999
  assert 'settings: got 20000, ' in refused(combine, grids, ranges, 10_000)
  few = combine({}, parse_ranges(['local_epochs=1..3']), 20)  # each once
  assert sorted(row['local_epochs'] for row in few) == ['1', '2', '3']


GRID = '--grid: got {!r}, expected a field and its values'
RANGE = '--range: got {!r}, expected a field, and two numbers'


@pytest.mark.parametrize(
  ('parse', 'words', 'texts'),
  [
    (parse_grids, GRID, ('learning_rate', 'a=', '=0.1', 'a=0.1,,0.2')),
    (parse_ranges, RANGE, ('a=0.1', 'a=a..b', 'a=2..1', '=1..2', 'a=..')),
    (parse_ranges, RANGE, ('a={[]:1}..2', 'a=1..1e999')),
  ],
)
def test_a_field_without_its_values(parse, words, texts):
  for text in texts:
    assert refused(parse, [text]).startswith(words.format(text))


@pytest.mark.parametrize(
  ('parse', 'texts'),
  [(parse_grids, ['a=1', 'a=2']), (parse_grids, ['seed=1,2'])],
)
def test_fields_that_are_asked_for_twice_and_seeds(parse, texts):
  message = refused(parse, texts)
  assert 'every field once' in message and '--seeds=3' in message


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (({}, {'a': Range(1, 2, True)}, None), '--random: got None'),
    (({}, {}, None), 'a field to vary'),
  ],
)
def test_flags_that_belong_together(flags, words):
  assert words in refused(check_together, *flags)

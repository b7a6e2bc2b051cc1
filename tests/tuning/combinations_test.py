"""What --grid, --range and --random ask for, and how mistakes are refused."""

import math

import pytest
from helpers import refused

from fedjax_pfl.tuning.combinations import (
  Range,
  check_together,
  combine,
  draw,
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
  rows = draw(ranges, 400)
  assert rows == draw(ranges, 500)[:400]  # a larger number adds to them
  rates = [math.log10(float(row['learning_rate'])) for row in rows]
  assert min(rates) >= -3 and max(rates) <= 0
  assert sum(rates) / 400 == pytest.approx(-1.5, abs=0.15)
  mus = [float(row['hp.mu']) for row in rows]
  assert sum(mus) / 400 == pytest.approx(0.5, abs=0.05)
  assert {row['local_epochs'] for row in rows} == {*map(str, range(1, 9))}
  assert combine({'a': ['1', '2']}, ranges, 3)[3:] == [
    {'a': '2', **row} for row in rows[:3]
  ]


@pytest.mark.parametrize(
  'text', ['learning_rate', 'learning_rate=', '=0.1', 'momentum=0.1,,0.2']
)
def test_a_grid_without_values(text):
  message = refused(parse_grids, [text])
  assert message.startswith(f'--grid: got {text!r}, expected a field and its')


@pytest.mark.parametrize(
  'text', ['momentum=0.1', 'momentum=a..b', 'momentum=2..1', '=1..2', 'a=..']
)
def test_a_range_without_ends(text):
  message = refused(parse_ranges, [text])
  assert message.startswith(f'--range: got {text!r}, expected a field, and two')


def test_fields_that_are_asked_for_twice_and_seeds():
  assert 'every field once' in refused(parse_grids, ['a=1', 'a=2'])
  assert '--seeds=3' in refused(parse_grids, ['seed=1,2'])
  assert '--seeds=3' in refused(parse_ranges, ['seed=1..2'])


def test_flags_that_belong_together():
  grids, ranges = parse_grids(['a=1']), parse_ranges(['a=1..2'])
  assert 'fields that have no --grid' in refused(
    check_together, grids, ranges, 2
  )
  assert '--random: got None' in refused(check_together, {}, ranges, None)
  assert '--random: got 3' in refused(check_together, grids, {}, 3)
  assert 'a field to vary' in refused(check_together, {}, {}, None)
  check_together(grids, {}, None)

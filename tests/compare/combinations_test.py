"""What --grid, --range and --random ask for, and how mistakes are refused."""

import math

import pytest
from helpers import refused

from fedjax_pfl.compare.combinations import (
  Range,
  combine,
  make_candidates,
  parse,
)


def grids(*texts):
  return parse(texts, [], None)['']


def ranges(*texts):
  return parse([], texts, 1)['']


def test_every_combination_of_a_grid():
  varied = grids('learning_rate=0.1, 0.03,0.1', 'lr_milestones=(),(0.5,)')
  assert combine(varied, 0) == [
    {'learning_rate': rate, 'lr_milestones': drops}
    for rate in ('0.1', '0.03')
    for drops in ('()', '(0.5,)')
  ]


def test_random_numbers_lie_in_their_ranges():
  """Evenly on a log scale where both ends are positive."""
  varied = ranges('learning_rate=0.001..1', 'hp.mu=0.0..1', 'local_epochs=1..8')
  assert varied['local_epochs'] == Range(1, 8, True)
  rows = combine(varied, 400)
  assert rows == combine(varied, 500)[:400]  # a larger number adds to them
  first = {'learning_rate': varied['learning_rate']}
  alone = [row['learning_rate'] for row in combine(first, 20)]
  assert alone == [row['learning_rate'] for row in rows[:20]]
  rates = [math.log10(float(row['learning_rate'])) for row in rows]
  assert min(rates) >= -3 and max(rates) <= 0
  assert sum(rates) / 400 == pytest.approx(-1.5, abs=0.15)
  mus = [float(row['hp.mu']) for row in rows]
  assert sum(mus) / 400 == pytest.approx(0.5, abs=0.05)
  assert {row['local_epochs'] for row in rows} == {*map(str, range(1, 9))}
  both = {'a': ['1', '2'], **varied}
  assert combine(both, 3)[3:] == [{'a': '2', **row} for row in rows[:3]]
  narrow = combine(ranges('lr_decay=0.995..0.9999'), 20)
  decays = {float(row['lr_decay']) for row in narrow}
  assert len(decays) > 15 and 0.995 <= min(decays) <= max(decays) <= 0.9999
  assert 'settings: got 20000, ' in refused(combine, both, 10_000)
  few = combine(ranges('local_epochs=1..3'), 20)  # each once
  assert sorted(row['local_epochs'] for row in few) == ['1', '2', '3']


def test_a_method_has_fields_beside_those_of_all():
  texts = ['learning_rate=0.1,0.2', 'mine.py:Mine:hp.mu=(1,),b']
  methods = 'fedavg', 'mine.py:Mine#4f0c8e21ab37'
  candidates = make_candidates(
    methods, parse(texts, [], None, methods=methods), 0
  )
  assert candidates[methods[0]] == tuple(
    {'learning_rate': rate} for rate in (0.1, 0.2)
  )
  assert candidates[methods[1]] == tuple(
    {'learning_rate': rate, 'hp.mu': mu}
    for rate in (0.1, 0.2)
    for mu in ((1,), 'b')
  )
  message = refused(parse, ['ditto:hp.lam=1'], [], None, (), methods)
  assert "--grid: got 'ditto', expected a method of --methods" in message


@pytest.mark.parametrize(
  ('read', 'words', 'texts'),
  [
    (grids, 'its values', ('learning_rate', 'a=', '=0.1', 'a=0.1,,0.2')),
    (ranges, 'two numbers', ('a=0.1', 'a=a..b', 'a=2..1', '=1..2', 'a=..')),
    (ranges, 'two numbers', ('a={[]:1}..2', 'a=1..1e999')),
  ],
)
def test_a_field_without_its_values(read, words, texts):
  for text in texts:
    message = refused(read, text)
    assert f'got {text!r}, expected a field' in message and words in message


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    ((['a=1', 'a=2'], [], None), 'every field once'),
    ((['seed=1,2'], [], None), '--seeds=3'),
    ((['a=1'], ['a=1..2'], 3), '--range: got a, expected every field once'),
    ((['a=1'], [], None, ['a']), '--config: got a, expected every field once'),
    (([], ['a=1..2'], None), '--random: got None'),
    ((['a=1'], ['x:b=1..2'], None, (), ['x']), '--random: got None'),
    ((['a=1'], [], 3), '--random: got 3'),
    (([], [], None), 'a field to vary'),
  ],
)
def test_flags_that_miss_each_other(flags, words):
  assert words in refused(parse, *flags).replace("'", '')

"""The tables of docs/leaderboard.md have the numbers of their CSVs alone."""

from pathlib import Path

import pytest
from helpers import read_rows

from fedjax_pfl.leaderboard import stored_counts
from fedjax_pfl.leaderboard.board import OPEN, WITHIN, make_board
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.report.text_table import decimal

VIEWS, WORST = ('before', 'after'), 'after_worst_tenth'
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / 'results' / 'leaderboard'
LITE = ['lite_digits_counts', 'lite_cifar10_counts']
MIXED = {'architectures_counts': True, 'architectures_cifar10_counts': False}


def all_methods():
  """Yield the cells of each method, of both data sets."""
  rows = read_rows(RESULTS / 'cifar10.csv')
  cifar10 = {row['method']: row for row in rows}
  demo = {row['method']: row for row in board_of('demo_counts').rows}
  unit = demo['fedavg']['gradients']
  for method, row in demo.items():
    if row['kind'] == 'reference':
      continue
    other = cifar10.get(method) or dict.fromkeys(rows[0])
    older = [float(other[one] or 'nan') for one in (*VIEWS, WORST)]
    cells = [*map(decimal, older, ('.1f', '.1f', '.0f'))]
    cells += [decimal(row[one]) for one in VIEWS]
    costs = row['gradients'] / unit, row['bytes_up'] / 1e6
    yield [method, *cells, *map(decimal, costs, ('.2f', '.0f'))]


def test_no_method_of_the_page_is_distinguishable_from_a_baseline():
  stored = read_rows(RESULTS / 'cifar10.csv')
  rows = [*stored, *board_of('demo_counts').rows]
  for base in 'fedavg', 'local_only':
    assert {row[f'vs_{base}_verdict'] or OPEN for row in rows} == {OPEN}


def test_the_page_has_the_numbers_of_the_files():
  rows = all_methods()
  expected = {' | '.join([display_name(name), *cells]) for name, *cells in rows}
  names = {line.split(' | ')[0] for line in expected}
  page = (ROOT / 'docs' / 'leaderboard.md').read_text()
  page = page.partition('## All methods')[2].partition('## Protocol')[0]
  lines = (line.strip('| ') for line in page.splitlines())
  assert {one for one in lines if one.split(' | ')[0] in names} == expected


@pytest.mark.parametrize('name, has_rate', MIXED.items())
def test_the_table_of_clients_with_different_models_is_that_of_its_counts(
  name, has_rate
):
  page = (ROOT / 'docs' / 'howto' / 'architectures.md').read_text()
  for row in board_of(name).rows:
    cells = [decimal(row[name]) for name in ('before', 'after')]
    cells += [gap(row, 'local_only', '.1f')]
    cells += [decimal(row['after_lowest_client'])]
    cells += [decimal(row['worse_than_alone'], '.0f')]
    cells += [str(row['learning_rate'])] * has_rate
    line = ' | '.join([display_name(row['method']), *cells])
    assert f'| {line} |' in page


@pytest.mark.parametrize('name', LITE)
def test_the_table_of_lite_is_that_of_its_counts(name):
  page = (ROOT / 'docs' / 'leaderboard.md').read_text()
  for row in board_of(name).rows:
    assert f'| {lite_line(row)} |' in page


def test_lite_finds_seven_methods_within_one_point_on_the_digits():
  rows, found = board_of('lite_digits_counts').rows, {}
  for base in 'fedavg', 'local_only':
    words = [row[f'vs_{base}_verdict'] for row in rows]
    assert {*words} == {None, WITHIN, OPEN}
    found[base] = words.count(WITHIN)
  assert found == {'fedavg': 7, 'local_only': 6}


def lite_line(row):
  """Return the cells of a row: numbers, gradients, and what was chosen."""
  names = 'before', 'after', 'after_lowest_client'
  cells = [display_name(row['method']), *(decimal(row[one]) for one in names)]
  cells += [gap(row, base, '.2f') for base in ('fedavg', 'local_only')]
  chosen = [row['settings'].replace('learning_rate=', '', 1), row['view']]
  chosen += [f'at an end: {row["ends"]}'] * bool(row['ends'])
  return ' | '.join([*cells, f'{row["gradients"]:,.0f}', ', '.join(chosen)])


def board_of(name):
  about, found = stored_counts.read([RESULTS / f'{name}.csv'])
  ((partition, entries),) = found.items()
  return make_board(about, partition, entries)


def gap(row, base, form):
  """Return a difference with its interval."""
  words = [row[f'vs_{base}_{end}'] for end in ('mean', 'low', 'high')]
  if words[0] is None:
    return '-'
  mean, low, high = (format(number, '+' + form) for number in words)
  return f'{mean} ({low} to {high})'

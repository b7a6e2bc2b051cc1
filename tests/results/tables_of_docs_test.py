"""The tables of docs/leaderboard.md have the numbers of their CSVs alone."""

import pytest
from helpers import read_rows
from pages import ROOT

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.statistics.board import BELOW, OPEN, WITHIN, make_board
from fedjax_pfl.results.tables.board_tables import rows_of

VIEWS = 'before', 'after'
RESULTS = ROOT / 'results' / 'leaderboard'
LITE, EQUAL = 'lite_counts', ', equal gradients'
short, whole = ACCURACY.short, ACCURACY._replace(digits=0).text
MIXED = {'architectures_counts': True, 'architectures_cifar10_counts': False}


def all_methods():
  """Yield the cells of each method, of both data sets."""
  rows = read_rows(RESULTS / 'cifar10.csv')
  cifar10 = {row['method']: row for row in rows}
  demo = {row['method']: row for row in board_of('demo_counts')}
  unit = demo['fedavg']['gradients']
  for method, row in demo.items():
    if row['kind'] == 'reference':
      continue
    other = cifar10.get(method) or dict.fromkeys(rows[0])
    cells = [short(float(other[one] or 'nan')) for one in VIEWS]
    cells += [short(row[one]) for one in VIEWS]
    costs = row['gradients'] / unit, row['bytes_up'] / 1e6
    yield [method, *cells, ACCURACY.text(costs[0]), whole(costs[1])]


def test_no_method_of_the_page_is_distinguishable_from_a_baseline():
  stored = read_rows(RESULTS / 'cifar10.csv')
  rows = [*stored, *board_of('demo_counts')]
  for base in 'fedavg', 'local_only':
    assert {row[f'vs_{base}_verdict'] or OPEN for row in rows} == {OPEN}


def test_the_page_has_the_numbers_of_the_files():
  rows = all_methods()
  expected = {' | '.join([paper_name(name), *cells]) for name, *cells in rows}
  names = {line.split(' | ')[0] for line in expected}
  page = (ROOT / 'docs' / 'leaderboard.md').read_text()
  page = page.partition('## All methods')[2].partition('## What')[0]
  lines = (line.strip('| ') for line in page.splitlines())
  assert {one for one in lines if one.split(' | ')[0] in names} == expected


@pytest.mark.parametrize('name, has_rate', MIXED.items())
def test_the_table_of_clients_with_different_models_is_that_of_its_counts(
  name, has_rate
):
  page = (ROOT / 'docs' / 'howto' / 'architectures.md').read_text()
  for row in board_of(name):
    cells = [short(row[name]) for name in ('before', 'after')]
    cells += [gap(row, 'local_only', '.1f')]
    cells += [short(row['after_lowest_client'])]
    cells += [whole(row['worse_than_alone'])]
    cells += [str(row['learning_rate'])] * has_rate
    line = ' | '.join([paper_name(row['method']), *cells])
    assert f'| {line} |' in page


def test_the_tables_of_lite_are_those_of_its_counts():
  page = (ROOT / 'docs' / 'leaderboard.md').read_text()
  for line in lite_lines():
    assert f'| {line} |' in page


def test_a_client_of_lite_has_fifty_tests():
  _, found = stored_counts.read([RESULTS / f'{LITE}.csv'])
  entries = [one for own in found.values() for one in own if one.after]
  assert min(one.after.total.min() for one in entries) >= 50


# What the page says of FedAvg and of Local only: who is below, how many within.
VERDICTS = {
  'CIFAR-10 Dir(0.1)': (BELOW, ['ditto'], ['ditto']),
  'CIFAR-10 Dir(0.1)' + EQUAL: (BELOW, ['apfl', 'ditto'], ['apfl']),
  'digits s=4': (WITHIN, 7, 6),
}


@pytest.mark.parametrize('partition', VERDICTS)
def test_lite_finds_methods_below_or_within_one_point(partition):
  verdict, *wanted = VERDICTS[partition]
  rows = boards_of(LITE)[partition]
  for base, want in zip(('fedavg', 'local_only'), wanted, strict=True):
    words = {row['method']: row[f'vs_{base}_verdict'] for row in rows}
    assert {*words.values()} <= {None, OPEN, verdict}
    names = sorted(name for name in words if words[name] == verdict)
    assert want in (names, len(names))


def lite_lines():
  """Yield the rows of each partition; of equal gradients the new ones."""
  boards = boards_of(LITE)
  for partition, board in boards.items():
    shared = boards[partition.removesuffix(EQUAL)]
    gradients = {row['method']: row['gradients'] for row in shared}
    for row in board:
      is_new = row['gradients'] != gradients[row['method']]
      if board is shared or is_new:
        yield lite_line(row, EQUAL * is_new)


def lite_line(row, suffix):
  """Return the cells of a row: numbers, gradients, and what was chosen."""
  cells = [paper_name(row['method']) + suffix]
  cells += [short(row[one]) for one in (*VIEWS, 'after_worst_tenth')]
  cells += [gap(row, base, '.2f') for base in ('fedavg', 'local_only')]
  cells += [whole(row['gradients'])]
  chosen = [row['settings'].replace('learning_rate=', '', 1), row['view']]
  chosen += [f'at an end: {row["ends"]}'] * bool(row['ends'])
  chosen += [row['obstacle']] * bool(row['obstacle'])
  return ' | '.join([*cells, ', '.join(chosen)])


def boards_of(name):
  about, found = stored_counts.read([RESULTS / f'{name}.csv'])
  return {
    one: rows_of(make_board(about, one, own)) for one, own in found.items()
  }


def board_of(name):
  (board,) = boards_of(name).values()
  return board


def gap(row, base, form):
  """Return a difference with its interval."""
  words = [row[f'vs_{base}_{end}'] for end in ('mean', 'low', 'high')]
  if words[0] is None:
    return '-'
  mean, low, high = (format(number, '+' + form) for number in words)
  return f'{mean} ({low} to {high})'

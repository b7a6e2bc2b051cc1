"""The tables of docs/leaderboard.md have the numbers of their CSVs alone."""

from pathlib import Path

from fedjax_pfl.leaderboard.board import OPEN, judged_again, read
from fedjax_pfl.report.styles import display_name

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / 'results' / 'leaderboard'


def load(name):
  """Return {method: its rows, one for each partition} of a form."""
  found = {}
  for row in read(RESULTS / f'{name}.csv', name):
    found.setdefault(row['method'], []).append(row)
  return {method: rows for method, rows in found.items() if is_ranked(rows[0])}


def is_ranked(row):
  return row['kind'] != 'reference' and row['after']


def after(row):
  star = '' if row['vs_fedavg_verdict'] in ('', OPEN) else ' *'
  return f'{float(row["after"]):.1f}{star}'


def accuracies(row):
  """Return before and after, and the worst tenth of enough tests."""
  if not row:
    return ['-'] * 3
  before = f'{float(row["before"]):.1f}' if row['before'] else '-'
  worst = row['after_worst_tenth']
  return [before, after(row), *([f'{float(worst):.0f}'] if worst else [])]


def all_methods():
  cifar10, demo = load('cifar10'), load('demo')
  unit = float(demo['fedavg'][0]['gradients'])
  for method, (row,) in demo.items():
    cost = f'{float(row["gradients"]) / unit:.2f}'
    sent = f'{float(row["bytes_up"]) / 1e6:.0f}'
    (other,) = cifar10.get(method, [None])
    yield [method, *accuracies(other), *accuracies(row), cost, sent]


def test_the_page_has_the_numbers_of_the_files():
  rows = all_methods()
  expected = {' | '.join([display_name(name), *cells]) for name, *cells in rows}
  names = {line.split(' | ')[0] for line in expected}
  page = (ROOT / 'docs' / 'leaderboard.md').read_text()
  lines = (line.strip('| ') for line in page.splitlines())
  assert {one for one in lines if one.split(' | ')[0] in names} == expected


def test_every_verdict_follows_from_the_means_in_its_file():
  for name in ('cifar10', 'demo', 'digits'):
    rows = read(RESULTS / f'{name}.csv', name)
    assert judged_again(rows) == rows

"""The board of attacks: its cells, a row of counts, and what the page says."""

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from experiments.attacks_board import cells, page
from fedjax_pfl.results.runs.run import read
from tests.results.page_runs import make_run

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / 'results' / 'attacks' / 'digits_counts.csv'
KEY = 'method', 'attack', 'rule', 'seed'
CLASSES = ' | '.join(['9 0', '0 9', *['5 5'] * 6])


@pytest.mark.parametrize(
  ('form', 'size', 'clients'),
  [('digits', 101, 20), ('cifar10', 28, 50), ('lite', 101, 20)],
)
def test_the_cells_differ_in_method_attack_and_rule_alone(form, size, clients):
  board = cells.cells(form)
  assert len({cell[1:] for cell in board}) == len(board) == size
  for cell in board:
    settings, number = cell.settings, cell.settings.data.num_clients
    assert settings.algorithm == cell.method and number == clients
    assert settings.num_drawn == number
    if cell.method != cells.ALONE:
      assert (settings.attack.name, settings.aggregation.rule) == cell[2:]
      assert settings.aggregation.bears == settings.attack.attackers == 0.2


def test_a_row_has_the_right_answers_of_every_client(tmp_path):
  summary = {'mean': 12.5}
  lies = {
    'attackers': [1, 3],
    'backdoor': {'initial': summary, 'finetuned': summary},
    'left_out': {'left_out/share': 0.5, 'left_out/precision': np.nan},
  }
  run = read(make_run(tmp_path / 'run', more={'lies': lies}))
  cell = cells.Cell(None, 'fedavg', 'backdoor', 'uniform')
  cells.write([cells._row(cell, run)], tmp_path / 'x' / 'counts.csv')
  ((row),) = csv.DictReader((tmp_path / 'x' / 'counts.csv').open())
  assert row['before'] == '10 20 30 40' and row['after'] == '90 80 70 30'
  assert row['attackers'] == '1 3' and row['success_after'] == '12.5000'
  assert (row['share'], row['precision'], row['recall']) == ('0.5000', '', '')


def made(path):
  """Write a board of two seeds: of 8 clients with ten tests 6 and 7 attack."""
  rows, rng = [], np.random.default_rng(0)
  every = [('local_only', 'none', 'uniform')]
  every += [*itertools.product(cells.METHODS, cells.ATTACKS, cells.RULES)]
  for cell, seed in itertools.product(every, (0, 1)):
    row = dict(zip(KEY, (*cell, seed), strict=True))
    row |= {'attackers': '6 7'} if cell[1] != 'none' else {}
    for view in page.VIEWS:
      row[view] = ' '.join(map(str, rng.integers(0, 11, 8)))
      if cell[1] == 'backdoor':
        row[f'success_{view}'] = 10.0 + 5 * seed * (view == 'after')
    if cell[0] == 'local_only':
      row |= {'tests': ' '.join(['10'] * 8), 'classes': CLASSES}
    rows.append(row)
  cells.write(rows, path)
  return {tuple(row[x] for x in KEY): row for row in rows}


def test_the_page_compares_honest_clients_with_the_clean_mean(tmp_path):
  rows = made(tmp_path / 'board' / 'counts.csv')
  board = page.read(tmp_path / 'board' / 'counts.csv')

  def mean(attack, used):
    change = 0
    for seed in (0, 1):
      after, before = (
        np.array(rows['ditto', one, 'uniform', seed]['after'].split(), int)
        for one in (attack, 'none')
      )
      change += (after - before)[used].mean() * 10 / 2
    return change

  found = page.gaps_of(board)['Ditto, personal', 'alie', 'uniform']
  assert np.isclose(found.mean, mean('alie', slice(6)))
  assert found.low < found.mean < found.high
  base = ('ditto', 'after', *page.CLEAN)
  far = lambda seed: board.unlike[seed] > 0.3  # clients 0 and 1
  one = page.gap(board, [('ditto', 'after', 'alie', 'uniform')], base, far)
  assert np.isclose(one.mean, mean('alie', slice(2)))
  lines = [*page.sentences(board)]
  assert len(lines) == 5
  assert "FedAvg's model in 10.0 % of the tests" in lines[2]
  assert 'ones in 12.5 %: +2.5 (' in lines[2]


def test_the_page_is_what_its_counts_say():
  path = ROOT / page.PAGE
  assert page.text(page.read(COUNTS), path) == path.read_text()

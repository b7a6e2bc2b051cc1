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
COUNTS = ROOT / 'results' / 'attacks'
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


def test_a_row_has_the_right_answers_of_every_client(tmp_path, monkeypatch):
  lies = {
    'attackers': [1, 3],
    'left_out': {'left_out/share': 0.5, 'left_out/precision': np.nan},
  }
  hits = {'initial': np.arange(4.0), 'finetuned': np.zeros(4)}
  monkeypatch.setattr(cells, 'opened', lambda run: hits)
  run = read(make_run(tmp_path / 'run', more={'lies': lies}))
  cell = cells.Cell(None, 'fedavg', 'backdoor', 'uniform')
  cells.write([cells._row(cell, run)], tmp_path / 'x' / 'counts.csv')
  ((row),) = csv.DictReader((tmp_path / 'x' / 'counts.csv').open())
  assert row['before'] == '10 20 30 40' and row['after'] == '90 80 70 30'
  assert row['attackers'] == '1 3' and row['success_before'] == '0 1 2 3'
  assert (row['share'], row['precision'], row['recall']) == ('0.5000', '', '')


def test_the_success_of_a_trigger_is_a_count_of_each_client(tmp_path):
  how = {'attack': 'backdoor', 'attackers': 0.2, 'attack_target': 1}
  run = read(make_run(tmp_path / 'run', **how))
  assert cells.of_others(run).tolist() == [35, 0, 35, 20]
  scores, share = run.clients.scores, np.array([20.0, np.nan, 100.0, 5.0])
  for view in scores:
    scores[view] = scores[view]._replace(own={'backdoor': share})
  assert cells.opened(run)['finetuned'].tolist() == [7, 0, 35, 1]


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
        hits = 1 + seed * (view == 'after')
        row[f'success_{view}'] = ' '.join([str(hits)] * 7 + ['5'])
      elif cell[1:] == cells.CLEAN:
        row[f'success_{view}'] = ' '.join(['0'] * 7 + ['5'])
    if cell[0] == 'local_only':
      row |= {'tests': ' '.join(['10'] * 8), 'classes': CLASSES}
      row['others'] = ' '.join(['5'] * 8)
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
  one = page.gap(
    board.accuracy, [('ditto', 'after', 'alie', 'uniform')], base, far
  )
  assert np.isclose(one.mean, mean('alie', slice(2)))
  lines = [*page.sentences(board)]
  assert len(lines) == 5
  assert 'moves 20.0 % of the tests to the target in FedAvg' in lines[2]
  assert ' and 30.0 % once it is fine-tuned: +10.0 (' in lines[2]
  assert 'attacks it moves 0.0 % and 0.0 %. Of 12 honest clients' in lines[2]


def test_the_page_is_what_its_counts_say():
  path = ROOT / page.PAGE
  for counts in COUNTS.glob('*_counts.csv'):
    form = counts.name.partition('_')[0]
    assert page.text(page.read(counts), path, form) == path.read_text()

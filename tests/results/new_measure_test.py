"""A measure is one entry: it appears in results, table, page, LaTeX and CSV."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_task
from page_runs import make_run

from configs.leaderboard import load_form
from experiments import overview
from fedjax_pfl.compare import protocol
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import measures
from fedjax_pfl.evaluation.measures import MIN, Measure
from fedjax_pfl.evaluation.own_metrics import metrics_of
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.results.page import render as page
from fedjax_pfl.results.page.board_page import render
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import METHOD
from fedjax_pfl.results.runs.frame import load_results
from fedjax_pfl.results.statistics.board import make_board
from fedjax_pfl.results.tables import board_tables
from fedjax_pfl.results.tables.result_table import table
from tests.results.board_test import make_entries

SPREAD = Measure(
  *('spread', 'Highest less lowest', '%', 1, MIN),
  of_clients=lambda accuracy, count: np.ptp(accuracy),
  compared=True,
)
MARGIN = Measure(
  *('margin', 'Margin', '', 3),
  of_client=lambda logits, labels, mask: jnp.sum(logits[:, 0] * mask),
)


@pytest.fixture
def known():
  measures.MEASURES.extend([SPREAD, MARGIN])
  yield
  del measures.MEASURES[-2:]


def test_a_number_of_all_accuracies(known, tmp_path):
  runs = [make_run(tmp_path / f'{seed}', seed=seed) for seed in (0, 1)]
  # Of 90, 80, 70 and 30: in result.json, in words, on the page, in pandas.
  scores = Scores(np.array([18, 16, 14, 6]), np.full(4, 20))
  views = {'finetuned': summarise(scores)}
  assert views['finetuned']['spread'] == 60
  result = {'algorithm': 'fedavg', 'views': views, 'seconds': 1.0}
  assert 'FedAvg, spread: finetuned 60.0' in table([result])
  text = page.render(runs)
  assert text.count('>Highest less lowest<') == 2 and '>60.0<' in text
  head, _, row = overview.as_table(runs).splitlines()[:3]
  assert 'Highest less lowest' in head and ' 60.0 ' in row
  frame = load_results(tmp_path, per_client=False)
  assert set(frame[frame.view == 'finetuned'].spread) == {60.0}


def test_it_has_a_column_in_every_file_of_a_comparison(known):
  about = protocol.about(load_form('digits'))
  board = make_board(about, 's=2', make_entries())
  best = board_tables.rows_of(board)[0]
  value = f'{best["after_highest_less_lowest"]:.1f}'
  assert float(value) > 5
  latex = board_tables.as_latex([board], [])
  assert ' & Highest less lowest & ' in latex
  assert f' & {value} & ' in next(
    line for line in latex.splitlines() if line.startswith('FedBABU')
  )
  assert '| Highest less lowest |' in board_tables.as_markdown([board], [])
  assert '>Highest less lowest<' in render(about, [board])


def test_a_number_of_the_predictions_is_measured_in_every_run(known):
  metrics = metrics_of((), make_task())
  assert metrics == {'margin': MARGIN.of_client}
  own = {'margin': np.array([1.0, 2.0, np.nan])}
  count = np.full(3, 4)
  views = {'initial': summarise(Scores(count, count, own=own))}
  result = {'algorithm': 'fedavg', 'views': views, 'seconds': 1.0}
  assert 'FedAvg, margin: initial 1.500' in table([result])


def test_an_older_run_has_what_follows_from_accuracies(tmp_path):
  path = make_run(tmp_path / 'old')
  assert 'spread' not in (tmp_path / 'old' / 'result.json').read_text()
  assert '>60.0<' not in page.render([path])
  measures.MEASURES.append(SPREAD)
  assert '>60.0<' in page.render([path])
  measures.MEASURES.remove(SPREAD)


def test_a_page_has_what_an_attack_did_to_honest_clients(tmp_path):
  out = {'left_out/precision': 0.375, 'left_out/recall': None}
  attacked = make_run(tmp_path / 'attacked', more={'lies': {'left_out': out}})
  text = page.render([attacked])
  assert text.count('>Precision<') == 2 and '>0.38<' in text
  assert '>Recall<' not in text
  assert '>Precision<' not in page.render([make_run(tmp_path / 'clean')])


def test_a_comparison_has_what_an_attack_did(tmp_path):
  form = load_form('digits')
  form = form.only('s=2')._replace(
    base=form.base
    | {'attack': 'backdoor', 'attackers': 0.2, 'attacker_ids': ()}
    | {'aggregation_before': ('mixing',), 'aggregation': 'krum'},
  )
  entries = [
    entry._replace(
      before=with_success(entry.after, 40),
      after=with_success(entry.after, 10),
      left_out={'left_out/recall': [0.5, 0.25, np.nan]},
    )
    for entry in make_entries()
    if entry.after and entry.kind == METHOD
  ]
  form = form._replace(methods=tuple(entry.method for entry in entries))
  about, path = protocol.about(form), tmp_path / 'x_counts.csv'
  stored_counts.write({'s=2': entries}, about, path)
  about, found = stored_counts.read([path])
  board = make_board(about, 's=2', found['s=2'])
  row = board_tables.rows_of(board)[0]
  assert row['before_backdoor'] == 40 and row['after_backdoor'] == 10
  assert row['left_out/recall'] == 0.375
  columns = {one.name for one in board_tables.tables_of(board)[0].columns}
  assert {'Backdoor before', 'Backdoor', 'Recall'} <= columns
  assert any('attack (backdoor)' in sentence for sentence in about.protocol)
  plain = make_board(protocol.about(load_form('digits')), 's=2', make_entries())
  names = board_tables.rows_of(plain)[0]
  assert not any('backdoor' in name or 'left' in name for name in names)


def with_success(counts, percent):
  return counts._replace(
    others={'backdoor': np.full(counts.total.shape, float(percent))}
  )

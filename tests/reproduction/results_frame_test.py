"""Results as a table for notebooks: the numbers of the run directories."""

import numpy as np
import pytest
from finished_runs import COUNT, TRAIN_COUNT, make_run

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.reproduction.results_frame import load_results
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import keys

VIEWS = ('initial', 'finetuned')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  folder = tmp_path_factory.mktemp('results')
  made = [
    make_run(folder / 'runs' / 'a', views=VIEWS, hp={'mu': 0.5}),
    make_run(folder / 'runs' / 'b', views=VIEWS, seed=1, dirichlet_beta=0.3),
  ]
  return folder, made


def test_a_row_for_every_client_and_view(runs):
  folder, made = runs
  frame = load_results(folder)
  assert len(frame) == 2 * 2 * 5
  for seed, run in enumerate(made):
    clients = run_dir.load_clients(run)
    for view, scores in clients.scores.items():
      part = frame[(frame.seed == seed) & (frame['view'] == view)]
      expected = accuracies(scores, clients.train_count)
      assert np.isnan(expected[3])
      np.testing.assert_allclose(part.accuracy, expected)
      np.testing.assert_array_equal(part.client, clients.ids)
      np.testing.assert_array_equal(part.correct, scores.correct)
      np.testing.assert_array_equal(part.test_count, COUNT)
      np.testing.assert_array_equal(part.train_count, TRAIN_COUNT)
      used = TRAIN_COUNT > 0
      np.testing.assert_array_equal(part.loss[used], scores.loss[used])
      top5 = 100 * scores.top5 / COUNT
      np.testing.assert_allclose(part.top5[used], top5[used])
      assert part[['loss', 'top5', 'ece', 'mce']][~used].isna().values.all()
      assert set(part.key) == {keys.run_key(run)}
  first = frame.iloc[0]
  assert first.algorithm == 'fedbabu' and first.dataset == 'digits'
  assert (first.num_clients, first.shards_per_client) == (20, 2)
  assert first.rounds == 16
  assert (first.hp, first.finetune_epochs) == ('mu=0.5', '5')
  assert frame.correct.dtype.kind == 'i'
  assert sorted(set(frame.dirichlet_beta)) == [0.3, 1.0]
  assert frame.columns.is_unique


def test_a_row_for_every_view(runs):
  folder, made = runs
  frame = load_results(folder / 'runs', per_client=False)
  assert len(frame) == 4
  summary = run_dir.load_result(made[1])['views']['finetuned']
  row = frame[(frame.seed == 1) & (frame['view'] == 'finetuned')].iloc[0]
  assert row['mean'] == summary['mean'] and row.num_left_out == 1
  assert [row.low, row.high] == summary['interval']
  assert row.images_per_second == 100.0 and row.seconds == 12.0
  assert np.isnan(row.bytes_down)


def test_nothing_to_load_is_a_sentence(tmp_path):
  with pytest.raises(BadInput, match='Likely cause: a mistyped path'):
    load_results(tmp_path)

"""The runs of a folder as one table for notebooks."""

import shutil

import numpy as np
import pytest
from finished_runs import COUNT, TRAIN_COUNT, K, make_run, make_settings
from helpers import refused

from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.results.runs.frame import load_results
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import keys

OTHER = {'seed': 1, 'dirichlet_beta': 0.3, 'momentum': 0.5}
OTHER['loss'] = 'own.py:brier#0123456789ab'


def test_one_config_on_two_sets_of_the_users_own(tmp_path):
  for data in ('images-clients', 'others-clients'):
    make_run(tmp_path / data, data=data, settings=make_settings(dataset='npz'))
  assert len(load_results(tmp_path)) == 2 * K
  make_run(
    tmp_path / 'c', data='images-more', settings=make_settings(dataset='npz')
  )
  assert 'a partition that has changed' in refused(load_results, tmp_path)


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  folder = tmp_path_factory.mktemp('results')
  views = 'initial', 'finetuned'
  made = [
    make_run(folder / 'runs' / 'a', views=views, hp={'trainable': 'full'}),
    make_run(folder / 'runs' / 'b', views=views, **OTHER),
  ]
  return folder, made


def test_a_row_for_every_client_and_view(runs):
  folder, made = runs
  shutil.copytree(made[0], folder / 'runs' / 'c')  # the same once more
  frame = load_results(folder)
  assert len(frame) == 2 * 2 * 5 and frame.columns.is_unique
  for seed, run in enumerate(made):
    clients = run_dir.load_clients(run)
    for view, scores in clients.scores.items():
      part = frame[(frame.seed == seed) & (frame['view'] == view)]
      expected = {
        'client': clients.ids,
        'correct': scores.correct,
        'test_count': COUNT,
        'train_count': TRAIN_COUNT,
        'accuracy': accuracies(scores, clients.train_count),
        'loss': np.where(TRAIN_COUNT > 0, scores.loss, np.nan),
        'top5': np.where(TRAIN_COUNT > 0, 100 * scores.top5 / COUNT, np.nan),
      }
      for name, values in expected.items():
        np.testing.assert_allclose(part[name], values, err_msg=name)
      assert set(part.key) == {keys.run_key(run)}
  first = frame.iloc[0]
  wanted = {
    **{'algorithm': 'fedbabu', 'dataset': 'digits', 'num_clients': 20},
    **{'shards_per_client': 5, 'rounds': 16, 'hp': 'trainable=full'},
    'finetune_epochs': '5',
  }
  assert {name: first[name] for name in wanted} == wanted
  assert frame.correct.dtype.kind == 'i'
  losses = {'cross_entropy', OTHER['loss']}
  assert set(frame.loss_function) == losses
  assert sorted(set(frame.dirichlet_beta)) == [0.3, 1.0]
  assert sorted(set(frame.momentum)) == [0.5, 0.9] and 'batch_size' not in frame

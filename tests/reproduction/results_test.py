"""Runs of a folder are found by their keys, and may not disagree."""

import shutil

import numpy as np
import pytest
from finished_runs import COUNT, TRAIN_COUNT, K, make_run, make_settings
from helpers import refused

from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.reproduction.plan import training_of
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.results_frame import load_results
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

VIEWS = ('initial', 'finetuned', 'initial:own')


def find(results, run, view='initial', folder=None):
  settings = parse_config(run_dir.load_config(folder or run)['config'])
  return results.find(keys.run_key(run), keys.evaluation_key(settings), view)


def test_a_run_is_found_below_runs_under_any_name(tmp_path):
  run = make_run(tmp_path / 'runs' / 'deeper' / 'a', views=VIEWS)
  run_dir.open_run(tmp_path / 'runs' / 'new', make_settings(seed=3), data='x-y')
  results = Results(tmp_path)
  for view in VIEWS:
    found = find(results, run, view)
    assert found.path == run and found.result == run_dir.load_result(run)
  assert found.run.data == 'images-clients'
  assert find(results, run, 'personal') is None
  assert results.find('0' * 16, '0' * 16, 'initial') is None
  assert len(results.paths) == 2 and len([*results.evaluations()]) == 1


def test_runs_of_another_machine_may_not_disagree(tmp_path):
  run = make_run(tmp_path / 'runs' / 'a')
  make_run(tmp_path / 'runs' / 'b', more=1e-8)  # rounding
  more = make_run(tmp_path / 'runs' / 'c', views=('initial', 'finetuned'))
  assert find(Results(tmp_path), more, 'finetuned')
  bad = make_run(tmp_path / 'runs' / 'd', more=1e-5)
  message = refused(Results, tmp_path)
  assert 'views.initial.loss=' in message
  assert str(bad) in message and str(run) in message


@pytest.mark.parametrize(
  'fields', [{}, {'validation_fraction': 0.1, 'select': 'validation'}]
)
def test_runs_that_started_from_another(tmp_path, fields):
  """The first is found wherever it is; the others follow it."""
  first = make_run(tmp_path / 'runs' / 'z', model=b'1', **fields)
  digest = run_dir.model_digest(first)
  begun = {'data': f'images-clients+{digest}', 'init_from': str(first)}
  make_run(tmp_path / 'runs' / 'a', **begun)
  results = Results(tmp_path)
  planned = training_of(make_settings(), make_settings(**fields), 0)
  assert results.path_of(planned) == tmp_path / 'runs' / 'a'
  second = make_run(tmp_path / 'b' / 'b', seed=1, **begun)
  first.rename(tmp_path / 'away')
  results.add_run(second)
  starts = [one.run.start for one in results.evaluations()]
  assert starts == ['', *[keys.run_key(tmp_path / 'away')] * 2]
  assert 'trained again, or not copied' in refused(Results, tmp_path)


def test_one_config_on_two_sets_of_the_users_own(tmp_path):
  for data in ('images-clients', 'others-clients'):
    make_run(tmp_path / data, data=data, settings=make_settings(dataset='npz'))
  assert len(load_results(tmp_path)) == 2 * K
  make_run(
    tmp_path / 'c', data='images-more', settings=make_settings(dataset='npz')
  )
  assert 'a partition that has changed' in refused(load_results, tmp_path)


# ---- As a table for notebooks ------------------------------------------------


OTHER = {'seed': 1, 'dirichlet_beta': 0.3, 'momentum': 0.5}
OTHER['loss'] = 'own.py:brier#0123456789ab'


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  folder = tmp_path_factory.mktemp('results')
  views = VIEWS[:2]
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

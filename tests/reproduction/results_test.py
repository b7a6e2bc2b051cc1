"""Runs of a folder are found by their keys, and may not disagree."""

import pytest
from finished_runs import make_run, make_settings
from helpers import refused

from experiments.reproduction.plan import training_of
from experiments.reproduction.results import Results
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
    assert found.run.path == run and found.run.result == run_dir.load_result(
      run
    )
  assert found.run.data == 'images-clients'
  assert find(results, run, 'personal') is None
  assert results.find('0' * 16, '0' * 16, 'initial') is None
  assert len(results.paths) == 2 and len(results.evaluations) == 1


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
  starts = [one.training.start for one in results.evaluations]
  assert starts == ['', *[keys.run_key(tmp_path / 'away')] * 2]
  assert 'where it was or in the same folder' in refused(Results, tmp_path)

"""Trackers: what they are told, once a round, and that they cost no run.

A small module stands in for wandb and for mlflow; the real ones, where they are
installed, are asked in real_trackers_test.py.
"""

import sys

import fake_trackers
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs import run_dir

CONFIG = {'seed': 1, 'hp': {'clip': float('inf')}, 'views': ('initial',)}


@pytest.fixture
def fakes(tmp_path):
  """Return {name: the module that stands in for a service}."""
  with fake_trackers.installed(tmp_path) as modules:
    yield modules


@pytest.fixture(params=fake_trackers.CODE)
def package(request, fakes):
  return fakes[request.param]


def begin(path, tracker, log=print):
  run = run_dir.open_run(path, CONFIG, data='d', log=log, tracker=tracker)
  done = run.resume({'w': np.zeros(2)})
  return run, done[0] if done else 0


def play(run, first, last, save_at=()):
  for done in range(first, last + 1):
    run.log(round=done, loss=1 / done, excluded_clients=[[1, 2]], bad=np.nan)
    if done in save_at:
      run.save_checkpoint(done, {'w': np.zeros(2)})


def end(run):
  ids = np.arange(2)
  run.write_clients({'v': Scores(ids, ids + 1)}, ids, train_count=ids)
  views = {'v': {'mean': 50.0, 'interval': [40, 60]}}
  run.write_result(
    algorithm='a', dataset='d', rounds=5, seconds=1.5, views=views
  )
  run.close()


RESULT = {'rounds': 5, 'seconds': 1.5, 'views/v/mean': 50.0}


def test_wandb_is_told_all_once_in_order(tmp_path, fakes, monkeypatch):
  monkeypatch.setenv('WANDB_API_KEY', 'my-key-0123')
  logged = []
  run, _ = begin(tmp_path / 'run7', 'wandb', logged.append)
  play(run, 1, 2)
  end(run)
  (_, id_, options), *calls = fakes['wandb'].CALLS
  settings = options.pop('settings').settings
  assert settings['silent'] and settings['console'] == 'off'
  assert id_ is None and options == {
    'project': 'fedjax_pfl',
    'name': 'run7',
    'config': {'seed': 1, 'hp': {'clip': 'inf'}, 'views': ['initial']},
    'resume': 'allow',
    'reinit': 'create_new',
    'allow_val_change': True,
  }
  assert calls == [
    ('log', 'new1', 1, {'loss': 1.0}),
    ('log', 'new1', 2, {'loss': 0.5}),
    ('summary', RESULT),
    ('finish', 'new1', 0),
  ]
  assert logged == ['wandb: http://host/run']  # no password
  files = [path for path in (tmp_path / 'run7').rglob('*') if path.is_file()]
  assert files and not any(b'my-key' in path.read_bytes() for path in files)


def test_mlflow_is_told_all_once_in_order(tmp_path, fakes):
  run, _ = begin(tmp_path / 'run7', 'mlflow')
  play(run, 1, 1)
  end(run)
  calls = fakes['mlflow'].CALLS
  assert calls == [
    ('create', 'experiment fedjax_pfl', 'run7'),
    ('params', {'seed': '1', 'hp.clip': 'inf', 'views': "['initial']"}),
    ('log', {1}, {'loss': 1.0, 'round': 1}),
    ('log', {1}, RESULT),
    ('end', 'run1', 'FINISHED'),
  ]


def test_a_resumed_run_is_the_same_one_with_every_round_once(tmp_path, package):
  name = package.__name__
  run, _ = begin(tmp_path / 'run', name)
  play(run, 1, 5, save_at=[3])
  del run  # killed: nothing is closed
  run, done = begin(tmp_path / 'run', name)
  assert done == 3
  play(run, 4, 6)
  end(run)
  calls = package.CALLS
  if name == 'wandb':
    assert [call[1] for call in calls if call[0] == 'init'] == [None, 'new1']
    rounds = [call[2] for call in calls if call[0] == 'log']
    assert calls[-1] == ('finish', 'new1', 0)
  else:
    assert sum(call[0] == 'create' for call in calls) == 1
    assert sum(call[0] == 'params' for call in calls) == 1
    assert ('update', 'run1', 'RUNNING') in calls
    rounds = [call[1].pop() for call in calls if call[0] == 'log'][:-1]
    assert calls[-1] == ('end', 'run1', 'FINISHED')
  assert rounds == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize('what', ['init', 'log', 'summary', 'finish'])
def test_a_tracker_that_fails_costs_a_sentence_and_no_number(
  tmp_path, fakes, what
):
  fakes['wandb'].FAILS.add(what)
  logged = []
  run, _ = begin(tmp_path / 'run', 'wandb', logged.append)
  play(run, 1, 3)
  end(run)
  tried = [call for call in fakes['wandb'].CALLS if call[0] == what]
  assert len(tried) == 1  # not again
  (sentence,) = [text for text in logged if 'nothing more' in text]
  assert sentence == (
    f'wandb is sent nothing more of {tmp_path / "run"} (no {what} at '
    'http://host/); the run goes on, and all its numbers are in its directory.'
  )
  assert len(run_dir.load_metrics(tmp_path / 'run')) == 3
  assert run_dir.load_result(tmp_path / 'run')['status'] == 'finished'


def test_a_package_that_is_absent_is_a_sentence_and_no_file(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(sys, 'path', [str(tmp_path)])
  monkeypatch.delitem(sys.modules, 'wandb', raising=False)
  (tmp_path / 'wandb').mkdir()  # as wandb itself leaves one

  with pytest.raises(BadInput) as caught:
    begin(tmp_path / 'run', 'wandb')
  assert str(caught.value) == (
    "tracker: got 'wandb, which is not installed here', expected the package "
    'wandb: pip install wandb. Choices: none, mlflow. Likely cause: it is '
    'optional, and this environment is without it.'
  )
  assert not (tmp_path / 'run').exists()

"""Trackers: what they are told, once a round, and that they cost no run.

A small module stands in for wandb and for mlflow, which the page's class speaks
to; the real ones are asked where they are installed.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from helpers import refused
from pages import ROOT, code_of

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients

CONFIG = {'seed': 1, 'hp': {'clip': float('inf')}, 'views': ('initial',)}


@pytest.fixture
def fakes(tmp_path):
  """Return {name: the module that stands in for a service}."""
  with installed(tmp_path) as modules:
    yield modules


def begin(path, tracker, log=print, **more):
  config = {**CONFIG, **more}
  run = run_dir.open_run(path, config, data='d', log=log, tracker=tracker)
  done = run.resume({'w': np.zeros(2)})
  return run, done[0] if done else 0


def play(run, first, last, save_at=()):
  for done in range(first, last + 1):
    run.log(round=done, loss=1 / done, excluded_clients=[[1, 2]], bad=np.nan)
    if done in save_at:
      run.save_checkpoint(done, {'w': np.zeros(2)})


def end(run):
  ids = np.arange(2)
  run.write_clients(Clients(ids, ids, {'v': Scores(ids, ids + 1)}))
  views = {'v': {'mean': 50.0, 'interval': [40, 60]}}
  run.write_result(
    algorithm='a', dataset='d', rounds=5, seconds=1.5, views=views
  )
  run.close()


RESULT = {'rounds': 5, 'seconds': 1.5, 'views/v/mean': 50.0}


def play_killed_and_resumed(path, tracker, log=print, **more):
  """Six rounds; killed after the fifth, continued after the third."""
  run, _ = begin(path, tracker, log, **more)
  play(run, 1, 5, save_at=[3])
  del run  # killed: nothing is closed
  if teardown := getattr(sys.modules.get('wandb'), 'teardown', None):
    teardown(exit_code=1)  # of the real one: nothing more is sent
  run, done = begin(path, tracker, log, **more)
  assert done == 3
  play(run, 4, 6)
  end(run)


def test_wandb_is_told_every_round_once(tmp_path, fakes, monkeypatch):
  monkeypatch.setenv('WANDB_API_KEY', 'my-key-0123')
  logged = []
  play_killed_and_resumed(tmp_path / 'run7', 'wandb', logged.append)
  calls = fakes['wandb'].CALLS
  begun = [calls.pop(place) for place in (6, 0)]
  assert [call[1] for call in begun] == ['new1', None]  # the same run
  options = begun[0][2]
  settings = options.pop('settings').settings
  assert settings['silent'] and settings['console'] == 'off'
  assert options == {
    'project': 'fedjax_pfl',
    'name': 'run7',
    'config': {'seed': 1, 'hp': {'clip': 'inf'}, 'views': ['initial']},
    'resume': 'allow',
    'reinit': 'create_new',
    'allow_val_change': True,
  }
  assert calls == [
    *(('log', 'new1', done, {'loss': 1 / done}) for done in range(1, 7)),
    ('summary', RESULT),
    ('finish', 'new1', 0),
  ]
  assert {*logged} == {'wandb: http://host/run'}  # no password
  files = [path for path in (tmp_path / 'run7').rglob('*') if path.is_file()]
  assert files and not any(b'my-key' in path.read_bytes() for path in files)


def test_a_class_of_the_page_tells_mlflow_every_round_once(tmp_path, fakes):
  (code,) = code_of('docs/howto/trackers.md')
  (tmp_path / 'mlflow_runs.py').write_text(code)
  name, logged = f'{tmp_path}/mlflow_runs.py:MLflow', []
  assert 'code that your own' in refused(begin, tmp_path / 'run7', name)
  tracker = load_code({'tracker': name})['tracker']
  play_killed_and_resumed(tmp_path / 'run7', tracker, logged.append)
  assert {*logged} == {f'{name}: run run1 of http://host'}  # no password
  rounds = [
    ('log', {done}, {'loss': 1 / done, 'round': done}) for done in range(1, 7)
  ]
  assert [
    ('create', 'experiment fedjax_pfl', 'run7'),
    ('params', {'seed': '1', 'hp.clip': 'inf', 'views': "['initial']"}),
    *rounds[:5],
    ('update', 'run1', 'RUNNING'),
    rounds[5],
    ('log', {6}, RESULT),
    ('end', 'run1', 'FINISHED'),
  ] == fakes['mlflow'].CALLS


@pytest.mark.parametrize('what', ['init', 'log', 'finish'])
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
  words = "wandb: pip install -e '.[wandb]'. Choices: none."
  assert words in str(caught.value)
  assert not (tmp_path / 'run').exists()


CODE = {
  'wandb': """
CALLS, FAILS, STEPS = [], set(), {}

def note(name, *what):
  CALLS.append((name, *what))
  if name in FAILS:
    raise RuntimeError(f'no {name} at http://me:secret@host/\\nsee the log')

class Settings:
  def __init__(self, **settings):
    self.settings = settings

class Run:
  offline, url = False, 'http://me:secret@host/run'
  def __init__(self, id, folder):
    self.id, self.dir, self.summary = id, f'{folder}/files', self
  @property
  def step(self):
    return STEPS.get(self.id, -1) + 1
  def log(self, numbers, step, commit):
    note('log', self.id, step, numbers)
    STEPS[self.id] = step
  def update(self, numbers):
    note('summary', numbers)
  def finish(self, exit_code):
    note('finish', self.id, exit_code)

def init(id=None, dir=None, **options):
  note('init', id, options)
  return Run(id or f'new{len(CALLS)}', dir)
""",
  'mlflow': """
import sys
from types import SimpleNamespace as Record
CALLS, EXPERIMENTS, HISTORY = [], {}, {}

class MlflowClient:
  tracking_uri = 'http://me:secret@host'
  def get_experiment_by_name(self, name):
    return EXPERIMENTS.get(name)
  def create_experiment(self, name):
    EXPERIMENTS[name] = Record(experiment_id=f'experiment {name}')
    return EXPERIMENTS[name].experiment_id
  def create_run(self, experiment, run_name):
    CALLS.append(('create', experiment, run_name))
    return Record(info=Record(run_id=f'run{len(CALLS)}'))
  def log_batch(self, run_id, metrics=(), params=()):
    assert len(params) <= 100
    CALLS.append(('params', dict(params)) if params else (
      'log', {m.step for m in metrics}, {m.key: m.value for m in metrics}))
    for m in metrics:
      HISTORY.setdefault(m.key, []).append(m)
  def get_metric_history(self, run_id, name):
    return HISTORY.get(name, [])
  def update_run(self, run_id, status):
    CALLS.append(('update', run_id, status))
  def set_terminated(self, run_id, status):
    CALLS.append(('end', run_id, status))
""",
}
ENTITIES = """
from collections import namedtuple
Param = namedtuple('Param', 'key value')
Metric = namedtuple('Metric', 'key value timestamp step')
"""


@contextlib.contextmanager
def installed(folder):
  """Yield {name: module} while they are what `import` finds."""
  path = str(folder / 'fakes')
  for name, code in CODE.items():
    (folder / 'fakes' / name).mkdir(parents=True)
    (folder / 'fakes' / name / '__init__.py').write_text(code)
    (folder / 'fakes' / name / 'entities.py').write_text(ENTITIES)
  variables = ('WANDB_PROJECT', 'MLFLOW_EXPERIMENT_NAME')
  environ = {k: v for k, v in os.environ.items() if k not in variables}
  with (
    mock.patch.object(sys, 'path', [path, *sys.path]),
    mock.patch.dict(os.environ, environ, clear=True),
  ):
    _forget()
    yield {name: importlib.import_module(name) for name in CODE}
    _forget()


def _forget():
  for name in [*sys.modules]:
    if name.split('.')[0] in CODE:
      del sys.modules[name]


# ---- the real ones, without a network, where they are installed

PROGRAM = """
import sys, trackers_test
path, name = sys.argv[1:]
tracker = trackers_test.load_code({'tracker': name})['tracker']
more = dict.fromkeys(map(str, range(150)))
trackers_test.play_killed_and_resumed(path, tracker, **more)
assert not {'tensorflow', 'torch', 'keras', 'tensorboard'} & {*sys.modules}
"""


def play_alone(tmp_path, package, name, **variables):
  """Run the program in a folder of its own; return its run directory."""
  if importlib.util.find_spec(package) is None:
    pytest.skip(f'{package} is not installed: pip install {package}')
  proxies = dict.fromkeys(('http_proxy', 'https_proxy'), 'http://127.0.0.1:9')
  folders = ROOT, ROOT / 'tests' / 'runs', ROOT / 'tests' / 'support'
  path = os.pathsep.join([*map(str, folders), os.environ.get('PYTHONPATH', '')])
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(tmp_path / 'run'), name],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': path, **proxies, **variables},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert 'nothing more' not in done.stdout, done.stdout
  assert [line.startswith(f'{name}: ') for line in lines] == [True, True]
  assert run_dir.load_result(tmp_path / 'run')['status'] == 'finished'
  return tmp_path / 'run'


def test_wandb_offline(tmp_path):
  variables = {'WANDB_MODE': 'offline', 'HOME': str(tmp_path)}
  run = play_alone(tmp_path, 'wandb', 'wandb', **variables)
  (id_,) = json.loads((run / 'tracker.json').read_text()).values()
  parts = sorted(run.glob(f'wandb/offline-run-*-{id_}/run-{id_}.wandb'))
  assert len(parts) == 2  # `wandb sync` makes one run of both


def test_mlflow_in_files(tmp_path):
  uri = (tmp_path / 'store').as_uri()
  variables = {
    'MLFLOW_TRACKING_URI': uri,
    'MLFLOW_ALLOW_FILE_STORE': 'true',
    'MLFLOW_DISABLE_TELEMETRY': 'true',
  }
  (code,) = code_of('docs/howto/trackers.md')
  (tmp_path / 'mlflow_runs.py').write_text(code)
  run = play_alone(tmp_path, 'mlflow', 'mlflow_runs.py:MLflow', **variables)
  (id_,) = json.loads((run / 'tracker.json').read_text()).values()
  (folder,) = (tmp_path / 'store').glob(f'*/{id_}')
  losses = (folder / 'metrics' / 'loss').read_text().splitlines()
  assert [line.split()[2] for line in losses] == [*'123456']
  assert (folder / 'params' / 'hp.clip').read_text() == 'inf'
  assert len([*(folder / 'params').iterdir()]) == 153
  mean = folder / 'metrics' / 'views' / 'v' / 'mean'
  assert mean.read_text().split()[1] == '50.0'

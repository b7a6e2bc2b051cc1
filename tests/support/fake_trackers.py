"""Small modules that stand in for wandb and mlflow; CALLS is what they hear.

`wandb.FAILS` names the calls that raise.
"""

import contextlib
import importlib
import os
import sys
from unittest import mock

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

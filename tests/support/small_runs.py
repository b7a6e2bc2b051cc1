"""Experiments on a model that compiles quickly, and what they leave behind."""

import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from norm_task import norm_task

from configs import digits
from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core.user_code import UserCode
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import parse_config, replace
from fedjax_pfl.training.build import Experiment, completed, placed
from fedjax_pfl.training.build_data import build_data
from fedjax_pfl.training.build_method import build_stages, peek_shape
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.outline import Outline
from fedjax_pfl.training.privacy_budget import make_budget
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import state_shapes

ROUNDS = 7
CLOCKS = ('time', 'images_per_second')
TASK = helpers.make_task(shape=(8, 8, 1), classes=10)
SETTINGS = {
  'num_clients': 10,
  'shards_per_client': 2,
  'max_train_examples': 200,
  'client_fraction': 0.3,
  'rounds': ROUNDS,
  'local_epochs': 1,
  'batch_size': 8,
  'learning_rate': 0.02,
  'log_every': 2,
  'eval_every': 3,
  'checkpoint_every': 4,
  'save_clients': (0, 3),
}


def make_settings(**changes):
  settings = digits.get_config('fedbabu').to_dict()
  settings['finetune']['epochs'] = (1,)
  return {**settings, **SETTINGS, **changes}


def make_experiment(**changes) -> Experiment:
  """Return what `build_experiment` returns, but for the model and its checks.

  What `init_from` names is not read.
  """
  settings = parse_config(make_settings(**changes))
  has_averages = settings.model.norm_statistics != 'batch'
  task = norm_task((8, 8, 1), 10) if has_averages else TASK
  shape, stages = peek_shape(settings.data), build_stages(settings, task)
  clients = shapes_of_clients(shape, settings.data.num_seen_clients)
  known = settings, shape, task, task, shape, clients, stages
  sketch = Outline(*known, metrics={})
  if settings.dp:
    budget = make_budget(settings, task, stages, sketch.clients, print)
    sketch = sketch._replace(privacy=budget)
  ignore = lambda text: None
  data = build_data(settings, ignore)
  return placed(completed(sketch, task, data, ignore), ignore)


def with_algorithm(experiment, **functions):
  """Return the experiment with functions of its last stage replaced."""
  *stages, last = experiment.stages
  algorithm = last.algorithm._replace(**functions)
  return experiment._replace(
    stages=(*stages, last._replace(algorithm=algorithm))
  )


def spoil_upload(experiment, client, rounds):
  """Return the experiment in which a client uploads NaN in `rounds`."""
  first = experiment.train.x[experiment.train.index[client, 0]]

  def spoilt(stage):
    update = stage.algorithm.local_update

    def spoil(down, own, data, rng):
      own, up, metrics = update(down, own, data, rng)
      is_client = (data.x[data.index[0]] == first).all()
      is_spoilt = is_client & jnp.isin(down.round, jnp.array(rounds))
      factor = jnp.where(is_spoilt, jnp.nan, 1.0)
      return own, jax.tree.map(lambda leaf: factor * leaf, up), metrics

    return replaced(stage, local_update=spoil)

  own = UserCode('spoil.py:spoilt', spoilt)
  return experiment.with_settings(replace(experiment.settings, around=own))


class Recorded(NamedTuple):
  """A run, with its state after every checkpoint."""

  experiment: Experiment
  program: Program  # with which it continues, and nothing is compiled again
  folder: Path  # the run is in run/, copies as kills leave them in killed2/
  states: dict
  result: dict

  @property
  def path(self):
    return self.folder / 'run'


def record(experiment, folder, kills=()) -> Recorded:
  """Train in a folder; keep the states, and copies after some checkpoints."""
  program, states = Program(experiment), {}

  def save(self, step, state, keep, save=Run.save_checkpoint):
    save(self, step, state, keep)
    states[step] = jax.tree.map(np.array, state)
    if step in kills:
      shutil.copytree(folder / 'run', folder / f'killed{step}')

  with mock.patch.object(Run, 'save_checkpoint', save):
    result = train(experiment, folder / 'run', program)
  return Recorded(experiment, program, folder, states, result)


def unfinish(workdir):
  """Leave a run as a kill does, after the last checkpoint but one."""
  newest = checkpoint.steps(workdir / 'checkpoints')[-1]
  shutil.rmtree(workdir / 'checkpoints' / str(newest))
  (workdir / run_dir.RESULT).unlink()
  return workdir


def snapshot(folder):
  return {
    path: (path.stat().st_mtime_ns, path.read_bytes())
    for path in Path(folder).rglob('*')
    if path.is_file()
  }


def restored(experiment, workdir):
  """Return the state of the newest checkpoint."""
  return checkpoint.restore(
    workdir / 'checkpoints', partial(state_shapes, experiment), pytest.fail
  )[1]


def server_of(experiment, workdir):
  """Return the round and the server of the newest checkpoint."""
  step = checkpoint.steps(workdir / 'checkpoints')[-1]
  return step, restored(experiment, workdir).server


def scores_of(workdir):
  return run_dir.load_clients(workdir).scores


def settings_of(config=digits, arg='', **changes):
  """Return the settings of a config, some changed: finetune__part='head'."""
  settings = config.get_config(arg).to_dict()
  for name, value in changes.items():
    group, _, field = name.partition('__')
    if field:
      settings[group][field] = value
    else:
      settings[name] = value
  return settings


def assert_same_run(got, want):
  """Compare all that runs leave, less their clocks.

  How wide the tests are padded shows in the last digits of a loss.
  """
  lines, others = run_dir.load_metrics(got), run_dir.load_metrics(want)
  for line in lines + others:
    assert line.pop('time') > 0 and line.pop('images_per_second', 1) > 0
  assert lines == others
  clients = [run_dir.load_clients(path) for path in (got, want)]
  for one, other in (clients, [own.unseen for own in clients]):
    assert (one is None) == (other is None)
    for view in one.scores if one else ():
      counts = [own.scores[view].correct for own in (one, other)]
      assert np.array_equal(*counts)
    helpers.assert_close(one and one.scores, other and other.scores)
  result, wanted = run_dir.load_result(got), run_dir.load_result(want)
  assert result.keys() == wanted.keys()
  assert result['test_best'] == wanted['test_best']
  chosen = [one.get('validation', {}) for one in (result, wanted)]
  for name in ('round', 'view', 'validation_accuracy'):
    assert chosen[0].get(name) == chosen[1].get(name)
  helpers.assert_same_bits(models_of(got), models_of(want))


def numbers_of(workdir):
  """Return every number that a finished run leaves, but its times."""
  with np.load(workdir / run_dir.CLIENTS, allow_pickle=False) as arrays:
    clients = {
      name: (str(arrays[name].dtype), arrays[name].tobytes())
      for name in arrays.files
    }
  result = run_dir.load_result(workdir)
  del result['seconds']
  metrics = []
  if (workdir / run_dir.METRICS).exists():  # a user may delete them
    metrics = run_dir.load_metrics(workdir)
  metrics = [
    {name: line[name] for name in line if name not in CLOCKS}
    for line in metrics
  ]
  return {'clients.npz': clients, 'result.json': result, 'metrics': metrics}


def models_of(workdir):
  models = {}
  for path in sorted((workdir / 'model').iterdir()):
    with np.load(path) as arrays:
      models[path.name] = {
        name: arrays[name]
        for name in arrays.files
        if arrays[name].dtype.kind == 'f'
      }
  assert models
  return models

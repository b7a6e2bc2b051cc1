"""Experiments on a model that compiles quickly, and what they leave behind."""

from functools import partial
from pathlib import Path

import helpers
import pytest

from configs import fedbabu_digits
from fedjax_pfl import checkpoints, store
from fedjax_pfl.cohorts import cohort_size
from fedjax_pfl.experiment import Experiment, build_data, build_stages
from fedjax_pfl.state import state_shapes

ROUNDS = 7
TASK = helpers.make_task(shape=(8, 8, 1), classes=10)
SETTINGS = {
  'clients': 10,
  'examples': 200,
  'fraction': 0.3,
  'rounds': ROUNDS,
  'local_epochs': 1,
  'batch_size': 8,
  'learning_rate': 0.02,
  'log_every': 2,
  'eval_every': 3,
  'checkpoint_every': 4,
  'save_clients': (0, 3),
}
STOPS = [2, 3, 4, 6, 7]


def make_settings(**changes):
  settings = fedbabu_digits.get_config().to_dict()
  settings['finetune']['epochs'] = (1,)
  return {**settings, **SETTINGS, **changes}


def make_experiment(**changes) -> Experiment:
  """Return what `build` returns, but for the model."""
  settings = make_settings(**changes)
  return Experiment(
    settings,
    *build_data(settings, lambda text: None),
    TASK,
    build_stages(settings, TASK),
    cohort_size(settings['clients'], settings['fraction']),
  )


def with_algorithm(experiment, **functions):
  """Return the experiment with functions of its last stage replaced."""
  *stages, last = experiment.stages
  algorithm = last.algorithm._replace(**functions)
  return experiment._replace(
    stages=(*stages, last._replace(algorithm=algorithm))
  )


def snapshot(folder):
  return {
    path: (path.stat().st_mtime_ns, path.read_bytes())
    for path in Path(folder).rglob('*')
    if path.is_file()
  }


def restored(experiment, workdir):
  """Return the state of the newest checkpoint."""
  return checkpoints.restore(
    workdir / 'checkpoints', partial(state_shapes, experiment), pytest.fail
  )[1]


def server_of(experiment, workdir):
  """Return the round and the server of the newest checkpoint."""
  step = checkpoints.steps(workdir / 'checkpoints')[-1]
  return step, restored(experiment, workdir).server


def scores_of(workdir):
  return store.load_clients(workdir).scores


def settings_of(config=fedbabu_digits, arg='', **changes):
  """Return the settings of a config, some changed: finetune__part='head'."""
  settings = config.get_config(arg).to_dict()
  for name, value in changes.items():
    group, _, field = name.partition('__')
    if field:
      settings[group][field] = value
    else:
      settings[name] = value
  return settings

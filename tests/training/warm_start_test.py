"""A run may begin with the final model of another, if it fits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KEY, assert_same_bits, make_task, refused

from configs import digits
from fedjax_pfl.algorithms import load
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment, build_task
from fedjax_pfl.training.warm_start import (
  check_same_clients,
  load_start,
  model_digest,
  name_data,
  start_from,
)

SHAPE = (8, 8, 1)
TASK = make_task(shape=SHAPE, classes=10)
MODEL = 'convnet3'


def make_run(path, params, data='images-clients', **about):
  """Write what a finished run with this final model leaves behind."""
  run = run_dir.open_run(path, {'seed': 0}, data=data)
  about = {
    'model': 'convnet3',
    'num_classes': 10,
    'image_shape': SHAPE,
    **about,
  }
  save_model(run.model_path('global'), params, about)
  run.write_result(
    algorithm='fedavg', dataset='digits', rounds=1, seconds=1.0, views={}
  )
  return str(path)


def test_a_run_begins_with_the_model_of_another(tmp_path):
  params = TASK.init(KEY(7))
  run = make_run(tmp_path / 'run', jax.tree.map(np.asarray, params))
  start = load_start(run, MODEL, SHAPE, TASK)
  assert_same_bits(start_from(TASK, start).init(KEY(8)), params)
  assert start.data_id == 'images-clients'


def test_a_damaged_result_names_no_model(tmp_path):
  """It is written again: of a method without a global model, too."""
  (tmp_path / run_dir.RESULT).write_text('{"status": "fini')
  assert model_digest(tmp_path) == ''


def test_another_model_makes_another_run(tmp_path):
  digests = set()
  for seed in (1, 2, 2):
    make_run(tmp_path / 'run', TASK.init(KEY(seed)))
    start = load_start(tmp_path / 'run', MODEL, SHAPE, TASK)
    digests.add(name_data('images-clients', start))
  assert len(digests) == 2
  assert all(name.startswith('images-clients+') for name in digests)


def test_a_run_that_is_not_there_or_not_finished(tmp_path):
  run = make_run(tmp_path / 'run', TASK.init(KEY(1)))
  args = MODEL, SHAPE, TASK
  message = refused(load_start, f'{tmp_path}/runn', *args)
  assert f'Choices: {run} (did you mean {run}?)' in message
  (tmp_path / 'run' / run_dir.RESULT).unlink()
  message = refused(load_start, run, *args)
  assert 'expected a run directory that holds result.json' in message
  assert 'a run that has not got that far' in message


def test_a_run_without_a_global_model(tmp_path):
  run = make_run(tmp_path / 'run', TASK.init(KEY(1)))
  (tmp_path / 'run' / 'model' / 'global.npz').unlink()
  message = refused(load_start, run, MODEL, SHAPE, TASK)
  assert 'a run with a global model' in message


@pytest.mark.parametrize(
  ('about', 'hidden', 'words'),
  [
    ({'model': 'convnet4'}, 5, 'a convnet4 for 10 classes of 8x8x1 images'),
    ({'num_classes': 62}, 5, 'a convnet3 for 62 classes of 8x8x1 images'),
    ({'image_shape': (28, 28, 1)}, 5, 'for 10 classes of 28x28x1 images'),
    ({}, 6, 'a convnet3 for 10 classes of 8x8x1 images, 460 parameters'),
  ],
)
def test_a_model_of_another_shape(tmp_path, about, hidden, words):
  task = make_task(hidden, shape=SHAPE, classes=10)
  run = make_run(tmp_path / 'run', task.init(KEY(1)), **about)
  message = refused(load_start, run, MODEL, SHAPE, TASK)
  got, _, expected = message.partition(', expected ')
  assert words in got
  assert expected.startswith(
    'a convnet3 for 10 classes of 8x8x1 images, 385 parameters.'
  )


def test_clients_of_another_partition(tmp_path):
  run = make_run(tmp_path / 'run', TASK.init(KEY(1)), data='a-b+c')
  start = load_start(run, MODEL, SHAPE, TASK)
  check_same_clients(start, 'a-b')
  message = refused(check_same_clients, start, 'a-d')
  assert f'{run}, on the data a-b' in message
  assert 'another seed, partition' in message


def test_lg_fedavg_wants_one_fedavg_model():
  """In a config without any: see refused_configs_test.py."""
  module = load('lg_fedavg')
  module.check_start(module.HParams(), '')
  module.check_start(module.HParams(train_fedavg=False), 'runs/a')
  message = refused(module.check_start, module.HParams(), 'runs/a')
  assert 'or with one more than it needs' in message


# ---- the whole config


@pytest.fixture
def run(tmp_path):
  """Return a function: settings -> a run that had their data and model."""

  def make(settings):
    task = build_task(parse_config(settings), SHAPE, 10)
    shapes = jax.eval_shape(task.init, KEY(0))
    params = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.5, 'f4'), shapes)
    data = build_experiment(
      {**settings, 'algorithm': 'fedavg', 'hp': {}}
    ).data_id
    return make_run(tmp_path / 'init_from', params, data=data), data

  return make


def test_a_config_that_only_evaluates_another_partition(run):
  settings = digits.get_config('fedavg').to_dict()
  start, data = run(settings)
  settings |= {'init_from': start, 'rounds': 0, 'shards_per_client': 4}
  experiment = build_experiment(settings)
  assert experiment.rounds == 0
  assert experiment.data_id.count('+') == 1
  assert not experiment.data_id.startswith(data)
  server = experiment.stages[0].algorithm.init_server(KEY(0))
  assert all(jnp.all(leaf == 0.5) for leaf in jax.tree.leaves(server.params))


def test_lg_fedavg_wants_the_clients_of_its_start(run):
  settings = digits.get_config('lg_fedavg').to_dict()
  start, data = run(settings)
  settings |= {'init_from': start, 'hp': {'train_fedavg': False}}
  experiment = build_experiment(settings)
  assert experiment.data_id.startswith(f'{data}+')
  assert [stage.name for stage in experiment.stages] == ['lg_fedavg']
  assert experiment.rounds == 4  # a quarter of FedAvg's 16
  message = refused(build_experiment, {**settings, 'shards_per_client': 4})
  assert f"init_from: got '{start}, on the data {data}" in message


def test_examples_are_kept_from_the_run_to_start_with_as_well(run):
  """That of the same split trained on none of them; another one did."""
  settings = digits.get_config('fedavg').to_dict()
  settings['validation_fraction'] = 0.2
  start, data = run(settings)
  settings['init_from'] = start
  assert build_experiment(settings).data_id.startswith(f'{data}+')
  message = refused(build_experiment, {**settings, 'validation_fraction': 0.1})
  assert f"init_from: got '{start}, on the data {data}" in message
  assert 'validation_fraction' in message

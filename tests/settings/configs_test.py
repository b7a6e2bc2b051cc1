"""Every config is a program that says how to run it, and one that traces.

Configs are found, not named; nothing is compiled and no data are read.
"""

import importlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import SHAPE, every_method, make_task

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation.evaluate import check_views, view_names
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.federated.rounds import make_round, stage_shapes
from fedjax_pfl.settings.validate import check_settings
from fedjax_pfl.training import experiment

ROOT = Path(__file__).parents[2]
NAMES = sorted(
  file.stem
  for file in (ROOT / 'configs').glob('*.py')
  if file.stem not in ('common', '__init__')
)
EXAMPLES = 60  # of a client: more than one batch

every_config = pytest.mark.parametrize('name', NAMES)


def load_config(name, arg=''):
  module = importlib.import_module(f'configs.{name}')
  return module.get_config(arg) if arg else module.get_config()


def make_shapes(clients, image_shape):
  """Return clients of EXAMPLES images as shapes."""
  rows = clients * EXAMPLES
  return ClientData(
    jax.ShapeDtypeStruct((rows, *image_shape), jnp.uint8),
    jax.ShapeDtypeStruct((rows,), jnp.int32),
    jax.ShapeDtypeStruct((clients, EXAMPLES), jnp.int32),
    jax.ShapeDtypeStruct((clients,), jnp.int32),
  )


def test_there_are_configs():
  assert len(NAMES) >= 6


@every_config
def test_docstring_has_the_command(name):
  text = importlib.import_module(f'configs.{name}').__doc__
  text = re.sub(r'\\\n\s*', '', text)  # a command may go over two lines
  commands = [line for line in text.splitlines() if 'python ' in line]
  assert commands, 'no command line'
  for command in commands:
    assert command.strip().startswith('python experiments/')
    assert re.search(rf'--config=configs/{name}\.py(:\w+)?( |$)', command)
    assert '--workdir=' in command
    assert (ROOT / command.split()[1]).exists()


@every_config
@pytest.mark.parametrize('arg', ['', 'quick'])
def test_config_can_be_locked_and_holds_to_the_rules(name, arg):
  config = load_config(name, arg)
  config.lock()
  with pytest.raises((AttributeError, KeyError)):
    config.learning_rat = 0.1
  check_settings(config.to_dict())
  assert config.quick == (arg == 'quick')


@every_config
def test_quick_is_smaller(name):
  full, quick = (load_config(name, arg).to_dict() for arg in ('', 'quick'))
  assert quick['num_clients'] <= 10 and 0 < quick['max_train_examples'] <= 1000
  assert quick['rounds'] <= 4 and quick['local_epochs'] == 1
  for field in ('algorithm', 'dataset', 'model', 'partition', 'hp'):
    assert quick[field] == full[field]


def config_of(method):
  """Return the first config of a method: others differ in data and numbers."""
  return next(name for name in NAMES if load_config(name).algorithm == method)


@every_method(3, 2)
def test_config_traces(name):
  """Task, stages, states, a round and personal models, from shapes alone.

  Of a small network: a large one takes seconds, and tests/models has them.
  """
  settings = load_config(config_of(name), 'quick').to_dict()
  settings['model'] = 'convnet3'
  image_shape, num_classes = experiment.peek_shape(settings)
  task = experiment.build_task(settings, image_shape, num_classes)
  data = make_shapes(settings['num_clients'], image_shape)
  key = jax.random.key(0)
  cohort = np.arange(
    cohort_size(settings['num_clients'], settings['client_fraction'])
  )
  stages = experiment.build_stages(settings, task)
  for stage, *states in stage_shapes(stages, data):
    round_fn = make_round(stage.algorithm, clients_per_chunk=1)
    ready = jax.eval_shape(stage.prepare_data, states[0], data)
    *after, metrics = jax.eval_shape(round_fn, *states, cohort, ready, key)
    assert jax.tree.structure(after) == jax.tree.structure([*states])
    assert metrics['loss'].shape == cohort.shape
  views = view_names(stage.algorithm, *states, data)
  check_views([*settings['views'], *settings['eval_views']], views)


@every_config
def test_views_of_the_whole_config_exist(name):
  """The full config fine-tunes for other epochs; views ask for no model."""
  settings = load_config(name).to_dict()
  stages = experiment.build_stages(settings, make_task())
  assert sum(stage.rounds for stage in stages) >= 1
  data = make_shapes(settings['num_clients'], SHAPE)
  *_, (last, *states) = stage_shapes(stages, data)
  views = view_names(last.algorithm, *states, data)
  check_views([*settings['views'], *settings['eval_views']], views)


def test_unknown_word_after_the_colon():
  common = importlib.import_module('configs.common')
  with pytest.raises(ValueError, match='quick'):
    common.base('quik')

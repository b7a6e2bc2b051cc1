"""A method of one's own is one file outside the package, and a flag."""

import pathlib

import jax
import jax.numpy as jnp
import pytest
from helpers import refused

import fedjax_pfl as pfl
from experiments.commandline import read_settings
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.keys import training_key

CONFIG = 'configs/digits.py:fedavg,quick'
METHOD = '''
"""FedNap: the head is frozen in every nap-th round t.

  w <- sum_i a_i/a SGD_tau(w; head frozen if nap divides t)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model, local_training, personalization
from fedjax_pfl.core.algorithm import Stage


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  nap: int = 2


def build(task, hp):
  def loss_of(server, client, data):
    is_frozen = (server.round + 1) % hp.nap == 0

    def loss(params, batch, rng):
      params = jax.tree.map(
        lambda head, leaf: jnp.where(
          head & is_frozen, jax.lax.stop_gradient(leaf), leaf
        ),
        task.is_head,
        params,
      )
      return task.loss(params, batch, rng)

    return loss

  def local_update(server, client, data, rng):
    client, params, metrics = update(server, client, data, rng)
    return client, params, metrics

  update = global_model.sgd_update(task, hp, loss_of)
  algorithm = global_model.federated_averaging(task, hp, local_update)
  return (Stage('fednap', hp.train.rounds, algorithm),)
'''


@pytest.fixture
def method(tmp_path):
  """Return 'FILE.py:FedNap'."""
  path = tmp_path / 'nap.py'
  path.write_text(METHOD)
  return f'{path}:FedNap'


def build(method, **hp):
  changes = {f'hp.{name}': value for name, value in hp.items()}
  settings = read_settings(CONFIG, {'algorithm': method, **changes})
  return build_experiment(settings)


def test_it_runs_from_the_command_line(method, quick_compiler):
  experiment = build(method, nap='1')
  (stage,) = experiment.stages
  key = jax.random.key(0)
  server, clients = pfl.begin(stage, experiment.train, key)
  round_fn = pfl.make_round(stage.algorithm, clients_per_chunk=1)
  cohort = jnp.array([3])
  after, _, metrics = round_fn(server, clients, cohort, experiment.train, key)
  assert after.round == 1 and jnp.isfinite(metrics['loss']).all()
  moved = jax.tree.map(
    lambda one, other: bool((one != other).any()), server.params, after.params
  )
  assert not any(moved['head'].values())  # it is frozen in all rounds
  assert moved['conv1']['kernel'] and moved['bn3']['scale']


def test_it_is_called_by_its_name_and_known_by_its_content(method):
  first = build(method).settings
  assert display_name(first.algorithm) == 'FedNap'
  path = pathlib.Path(method.partition(':')[0])
  path.write_text(f'{METHOD}\n')
  second = build(method).settings
  stored = parse_config({'algorithm': str(first.algorithm)})  # runs no file
  assert training_key(first, '') != training_key(second, '')
  assert display_name(stored.algorithm) == 'FedNap'
  message = refused(build_experiment, stored)
  assert f'--config.algorithm={method}' in message


@pytest.mark.parametrize(
  ('old', 'new', 'words'),
  [
    ('def build(', 'def make(', 'expected a name that nap.py defines'),
    ('def build(task, hp)', 'def build(task)', 'with build(task)'),
    ('(NamedTuple):', ':', 'no NamedTuple HParams'),
    ('sgd_update(', 'sgd_updte(', "no attribute 'sgd_updte'"),
    ('return client, params', 'return rng, params', 'pytree structure error'),
    ('hp.nap == 0', '(1 // 0) == 0', 'nap.py, line 2'),
  ],
)
def test_what_is_wrong_with_it_is_one_sentence(method, old, new, words):
  path = pathlib.Path(method.partition(':')[0])
  path.write_text(METHOD.replace(old, new))
  message = refused(build, method)
  assert message.startswith('algorithm: got '), message
  assert words in message.replace(str(path.parent) + '/', ''), message


def test_a_misspelt_method_or_hyperparameter_has_its_choices(method):
  assert '(did you mean fedavg?)' in refused(build, 'fedavgg')
  assert 'Choices: nap' in refused(lambda: build(method, naps='3'))

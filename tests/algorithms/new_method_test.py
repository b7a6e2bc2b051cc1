"""Adding a method takes one file and one config: here, in another folder."""

import sys

import jax
import jax.numpy as jnp
import pytest

from experiments.commandline import read_settings
from fedjax_pfl import algorithms
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.rounds import init_states, make_round
from fedjax_pfl.training.build import build_experiment

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
  def local_update(server, client, data, rng):
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

    params, info = local_training.fit(
      loss,
      server.params,
      data,
      rng,
      tx=hp.train.sgd(server.round),
      batching=hp.train.batching(task),
    )
    return client, params, info.metrics()

  algorithm = global_model.federated_averaging(
    task, hp.train, hp.finetune, local_update
  )
  return (Stage('fednap', hp.train.rounds, algorithm),)
'''
CONFIG = '''
"""FedNap on digits, with a frozen head in all rounds."""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='fednap',
    hp={'nap': 1},
    dataset='digits',
    model='convnet3',
    num_clients=20,
    shards_per_client=2,
    views=('initial',),
  )
'''


@pytest.fixture
def config(tmp_path, monkeypatch):
  """Return the config file of a method that is in a folder of its own."""
  (tmp_path / 'fednap.py').write_text(METHOD)
  (tmp_path / 'fednap_digits.py').write_text(CONFIG)
  folders = [*algorithms.__path__, str(tmp_path)]
  monkeypatch.setattr(algorithms, '__path__', folders)
  yield str(tmp_path / 'fednap_digits.py')
  sys.modules.pop('fedjax_pfl.algorithms.fednap', None)
  vars(algorithms).pop('fednap', None)


def test_it_runs_from_its_config(config, quick_compiler):
  experiment = build_experiment(read_settings(config))
  (stage,) = experiment.stages
  key = jax.random.key(0)
  server, clients = init_states(stage.algorithm, experiment.train, key)
  round_fn = make_round(stage.algorithm, clients_per_chunk=1)
  cohort = jnp.array([3])
  after, _, metrics = round_fn(server, clients, cohort, experiment.train, key)
  assert after.round == 1 and jnp.isfinite(metrics['loss']).all()
  moved = jax.tree.map(
    lambda one, other: bool((one != other).any()), server.params, after.params
  )
  assert not any(moved['head'].values())  # it is frozen in all rounds
  assert moved['conv1']['kernel'] and moved['bn3']['scale']


def test_errors_name_the_new_method_and_its_hyperparameters(config):
  with pytest.raises(BadInput, match=r'Choices: .*fednap.*mean fednap'):
    build_experiment(read_settings(config, {'algorithm': 'fednapp'}))
  with pytest.raises(BadInput, match=r'of fednap.*Choices: nap'):
    build_experiment(read_settings(config, {'hp.naps': '3'}))

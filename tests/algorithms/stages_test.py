"""Runs of several stages, each with states and views of its own."""

import shutil
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from small_runs import (
  TASK,
  make_experiment,
  restored,
  scores_of,
)

from fedjax_pfl.core import trees
from fedjax_pfl.federated.rounds import init_states
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.advance import num_images
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')


def two_stages(first, second):
  """Return FedBABU, then rounds of it in which clients keep a number.

  The second stage has states and a view that the first has not.
  """
  experiment = make_experiment(
    log_every=1,
    eval_every=1,
    checkpoint_every=1,
    views=('doubled',),
    eval_views=('doubled', 'initial'),
  )
  (stage,) = experiment.stages
  one = stage.algorithm

  def local_update(down, client, data, rng):
    kept, up, metrics = one.local_update(down, (), data, rng)
    assert kept == ()
    return client + data.count * down.round, up, metrics

  def views(server, client, data, rng):
    params = server[0].params
    doubled = jax.tree.map(lambda leaf: leaf * (1 + client), params)
    return {'doubled': doubled, 'initial': params}

  def aggregate(server, uploads, senders):
    after = one.aggregate(server.inner, uploads, senders)
    return Doubled(after, after.round)

  two = one._replace(
    init_server=lambda rng: Doubled(one.init_server(rng), jnp.zeros((), int)),
    init_client=lambda server, data, rng: jnp.zeros(()),
    download=lambda server, client: server.inner,
    local_update=local_update,
    aggregate=aggregate,
    personalize=views,
  )

  def initialize(server, clients, data):
    assert clients == ()
    half = jax.tree.map(lambda leaf: 0.5 * leaf, server.params)
    server = server._replace(params=half)
    return Doubled(server, server.round), 0.5 * data.count

  stages = (
    stage._replace(rounds=first),
    stage._replace(
      name='two', rounds=second, algorithm=two, initialize=initialize
    ),
  )
  return experiment._replace(stages=stages)


class Doubled(NamedTuple):
  inner: Any
  round: Any


def comparable(workdir):
  """Return all that a run leaves, less its clocks."""
  result = run_dir.load_result(workdir)
  lines = run_dir.load_metrics(workdir)
  for line in lines:
    del line['time'], line['images_per_second']
  assert result.pop('seconds') > 0
  return result, lines


@pytest.mark.long
def test_stages_of_other_states_are_resumed_with_the_same_bits(tmp_path):
  """Killed between the stages, and within the second."""
  experiment = two_stages(2, 2)
  kills = []

  def copy_when_saved(self, step, tree, save=Run.save_checkpoint):
    save(self, step, tree)
    if step in (2, 3):
      kills.append(tmp_path / f'killed{step}')
      shutil.copytree(tmp_path / 'unbroken', kills[-1])

  with mock.patch.object(Run, 'save_checkpoint', copy_when_saved):
    train(experiment, tmp_path / 'unbroken')
  want = comparable(tmp_path / 'unbroken')
  assert [line['stage'] for line in want[1]] == ['fedbabu'] * 2 + ['two'] * 2
  assert [line['round'] for line in want[1]] == [1, 2, 3, 4]
  for line in want[1]:  # the first stage has no view of this name
    assert ('doubled/accuracy' in line) == (line['stage'] == 'two')
    assert 'initial/accuracy' in line
  assert len(kills) == 2
  for killed in kills:
    train(experiment, killed)
    assert comparable(killed) == want
    assert_same_bits(scores_of(killed), scores_of(tmp_path / 'unbroken'))
  # The best rounds are those of the last stage.
  assert want[0]['test_best']['initial']['together']['round'] in (3, 4)
  state = restored(experiment, tmp_path / 'unbroken')
  assert state.server.round == 4
  cohort = np.asarray(state.clients) != 0.5 * np.asarray(experiment.train.count)
  assert 3 <= cohort.sum() <= 6  # those of rounds 3 and 4 went on from there
  # FedBABU never trains its head: it tells how often a stage was entered.
  first, _ = init_states(
    experiment.stages[0].algorithm,
    experiment.train,
    random_streams(0)['states'],
  )
  half = jax.tree.map(lambda leaf: 0.5 * leaf, first.params['head'])
  assert_same_bits(state.server.inner.params['head'], half)


@pytest.mark.long
def test_full_participation_prepared_data_and_initial_broadcast(
  tmp_path, capsys
):
  experiment = make_experiment(rounds=2, log_every=1, save_clients=())
  (stage,) = experiment.stages
  prepared = []

  def prepare_data(server, data):
    prepared.append(int(server.round))
    return data._replace(count=jnp.minimum(data.count, 8))  # one batch

  stage = stage._replace(
    full_participation=True,
    initial_broadcast=lambda server: server.params['body'],
    prepare_data=prepare_data,
    note='Everyone has one batch.',
  )
  train(experiment._replace(stages=(stage,)), tmp_path)
  assert prepared == [0]
  assert 'Everyone has one batch.' in capsys.readouterr().out
  lines = run_dir.load_metrics(tmp_path)
  assert [line['num_steps'] for line in lines] == [1, 1]
  params = jax.eval_shape(lambda: TASK.init(jax.random.key(0)))
  clients, clock = 10, 4
  head, body = (trees.num_bytes(params[part]) for part in ('head', 'body'))
  down = [line['bytes_down'] for line in lines]
  assert down == [clients * (clock + head + body), clients * (clock + head)]


def test_images_are_counted_by_steps():
  """Clients of 50 and 7 examples in batches of 20: two passes, two steps."""
  counts = np.array([[50, 7, 0]])
  assert num_images(np.array([[6, 2, 0]]), counts, 20) == 2 * 57
  assert num_images(np.array([[2, 1, 0]]), counts, 20) == 40 + 7

"""The models that clients keep of their best rounds, against a computation by
hand from the checkpoint of every round."""

import shutil
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from small_runs import TASK, make_experiment, restored

from fedjax_pfl.core import trees
from fedjax_pfl.reproduction.cells import Reading
from fedjax_pfl.reproduction.evaluate_again import scores_of
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.loop import train, train_many

pytestmark = pytest.mark.usefixtures('quick_compiler')
FIRST, ROUNDS, CLIENTS = 2, 6, 10  # rounds of FedAvg, of both stages
RELEASED = {'learning_rate': 0.3, 'protocol': 'released'}
SETTINGS = {
  'algorithm': 'lg_fedavg',
  'num_clients': CLIENTS,
  'views': ('initial',),
  'eval_views': ('initial',),
  'log_every': 1,
  'eval_every': 1,
  'checkpoint_every': 1,
}


def make_lg_fedavg(hp=RELEASED, **changes):
  """Return an experiment with few rounds of both stages."""
  experiment = make_experiment(**{**SETTINGS, 'hp': hp, **changes})
  first, last = experiment.stages
  stages = (
    first._replace(rounds=FIRST),
    last._replace(rounds=ROUNDS - FIRST),
  )
  return experiment._replace(stages=stages)


@pytest.fixture(scope='module')
def played(tmp_path_factory, quick_compiler):
  """Return an experiment, the folder of its runs, its state by round.

  The folder has the run, and copies as a kill after round 2 or 4 leaves them.
  """
  experiment, states = make_lg_fedavg(), {}
  folder = tmp_path_factory.mktemp('lg_fedavg')

  def save(self, step, state, save=Run.save_checkpoint):
    save(self, step, state)
    states[step] = jax.tree.map(np.array, state)
    if step in (FIRST, 4):
      shutil.copytree(folder / 'run', folder / f'killed{step}')

  with mock.patch.object(Run, 'save_checkpoint', save):
    train(experiment, folder / 'run')
  return experiment, folder, states


class Best(NamedTuple):
  """What one client keeps, by hand."""

  correct: int
  number: int
  model: dict


def correct_of(experiment, client, model):
  """Return how many of its tests a client predicts right."""
  test = experiment.test
  rows = test.index[client, : test.count[client]]
  x = TASK.normalise(test.x[rows], jax.random.key(0))
  logits = TASK.logits(model, x, jnp.ones(len(rows)))
  return int((logits.argmax(1) == test.y[rows]).sum())


def models_of(states, number):
  """Return every client's model after a round of the second stage."""
  server, clients = states[number].server, states[number].clients
  if number == FIRST:  # copies of FedAvg's
    return [server.params] * CLIENTS
  return [
    {'body': trees.gather(clients['body'], k), 'head': server.params['head']}
    for k in range(CLIENTS)
  ]


def best_by_hand(experiment, states):
  """Return the best of every client, and how often it was replaced by a tie."""
  best, ties = [Best(-1, -1, {})] * CLIENTS, 0
  for number in range(FIRST, ROUNDS + 1):
    for k, model in enumerate(models_of(states, number)):
      correct = correct_of(experiment, k, model)
      ties += correct == best[k].correct
      if correct >= best[k].correct:
        best[k] = Best(correct, number, model)
  return best, ties


def finished_by_hand(experiment, best):
  """Return the correct predictions with the mean head of the best models."""
  head = jax.tree.map(
    lambda *leaves: sum(leaves) / CLIENTS, *[own.model['head'] for own in best]
  )
  return [
    correct_of(experiment, k, {'body': own.model['body'], 'head': head})
    for k, own in enumerate(best)
  ]


def test_every_client_keeps_its_best_model(played):
  """The start is a candidate, and a tie replaces the earlier one."""
  experiment, folder, states = played
  best, ties = best_by_hand(experiment, states)
  got = restored(experiment, folder / 'run').test_best['initial'].each
  assert got.correct.tolist() == [own.correct for own in best]
  assert got.round.tolist() == [own.number for own in best]
  want = jax.tree.map(lambda *rows: np.stack(rows), *[b.model for b in best])
  assert_same_bits(got.models, want)
  assert FIRST in got.round and len(set(got.round.tolist())) > 2 and ties > 3


def test_the_mean_head_is_put_back_before_the_last_evaluation(played):
  """And a table reads the number of these models."""
  experiment, folder, states = played
  want = finished_by_hand(experiment, best_by_hand(experiment, states)[0])
  count = np.asarray(experiment.test.count)
  result = run_dir.load_result(folder / 'run')['test_best']['initial']
  mean = np.mean(100 * np.array(want) / count)
  assert result['finished']['mean'] == pytest.approx(mean)
  others = result['each']['mean'], result['together']['mean']
  assert result['finished']['mean'] not in others
  reading = Reading('initial', 'best_finished')
  scores = scores_of(experiment, folder / 'run', [reading], pytest.fail)
  assert list(scores) == ['initial:best_finished']
  assert scores['initial:best_finished'].correct.tolist() == want


@pytest.mark.parametrize('step', [FIRST, 4])
def test_a_killed_run_keeps_the_same_models(played, step):
  """Killed between the stages, when the start is evaluated, or in the second"""
  experiment, folder, _ = played
  train(experiment, folder / f'killed{step}')
  assert_same_best(experiment, folder / f'killed{step}', folder / 'run')


def assert_same_best(experiment, got, want):
  one, other = (restored(experiment, path).test_best for path in (got, want))
  assert_same_bits(one, other)
  assert jax.tree.leaves(one['initial'].each.models)
  results = [run_dir.load_result(path)['test_best'] for path in (got, want)]
  assert results[0] == results[1]


def test_models_are_kept_where_the_stage_asks_for_them_alone(played, tmp_path):
  """Training is the same; so is the best round but for start and ties."""
  experiment = make_lg_fedavg(hp={'learning_rate': 0.3})
  train(experiment, tmp_path)
  _, _, states = played
  state = restored(experiment, tmp_path)
  assert state.test_best['initial'].each.models == ()
  assert_same_bits((state.server, state.clients), states[ROUNDS][:2])
  best = run_dir.load_result(tmp_path)['test_best']['initial']
  assert best.keys() == {'each', 'together'}
  first = states[FIRST].test_best['initial'].each
  assert first.models == ()  # of FedAvg's stage
  rounds = state.test_best['initial'].each.round
  assert rounds.min() > FIRST


@pytest.mark.long
def test_clients_on_the_host_keep_the_same_models(played, tmp_path):
  experiment = make_lg_fedavg(clients_placement='host')
  train(experiment, tmp_path)
  assert_same_best(experiment, tmp_path, played[1] / 'run')


@pytest.mark.long
def test_seeds_keep_their_own_models(played, tmp_path):
  experiments = [make_lg_fedavg(seed=seed) for seed in (0, 1)]
  paths = [tmp_path / '0', tmp_path / '1']
  train_many(experiments, paths)
  assert_same_best(experiments[0], paths[0], played[1] / 'run')
  own, other = (run_dir.load_result(path)['test_best'] for path in paths)
  assert own['initial']['finished'] != other['initial']['finished']

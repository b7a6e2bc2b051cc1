"""The best rounds of a run, against a computation by hand from the checkpoint
of every round: chosen on validation, and kept by every client on its tests."""

import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import KEY, assert_same_bits, refused
from small_runs import (
  TASK,
  make_experiment,
  models_of,
  record,
  restored,
  scores_of,
)

from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.own_metrics import chooser
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import replace
from fedjax_pfl.training.best_models import choose
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Evaluator
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
EVERY_ROUND = {'log_every': 1, 'eval_every': 1, 'checkpoint_every': 1}
CANDIDATES = ('finetuned_1', 'finetuned_3', 'finetuned')
VALIDATING = {
  'algorithm': 'fedavg',
  'seed': 1,
  'num_clients': 6,
  'shards_per_client': 5,
  'rounds': 6,
  'learning_rate': 0.5,
  'validation_fraction': 0.3,
  'select': 'validation',
  'views': ('initial', 'finetuned'),
  'eval_views': ('finetuned',),
  'finetune': {'epochs': (5, 1, 3), 'learning_rate': 0.6},
  'save_clients': (2,),
  **EVERY_ROUND,
}
KEEPING = {
  'algorithm': 'lg_fedavg',
  'num_clients': 10,
  'views': ('initial',),
  'eval_views': ('initial',),
  'hp': {'learning_rate': 0.3, 'protocol': 'released'},
  **EVERY_ROUND,
}
FIRST, ROUNDS = 2, 6  # rounds of FedAvg, and of both stages


def validating(**changes):
  return make_experiment(**{**VALIDATING, **changes})


def keeping(**changes):
  """Return an LG-FedAvg with few rounds of both stages."""
  experiment = make_experiment(**{**KEEPING, **changes})
  first, last = experiment.stages
  stages = first._replace(rounds=FIRST), last._replace(rounds=ROUNDS - FIRST)
  return experiment._replace(stages=stages)


@jax.jit
def predicted(model, x, mask):
  return TASK.logits(model, TASK.normalise(x, KEY(0)), mask).argmax(1)


def correct_of(data, client, model):
  """Return how many examples of a client a model predicts right."""
  rows = np.asarray(data.index[client])
  mask = np.arange(len(rows)) < data.count[client]
  right = predicted(model, data.x[rows], mask) == data.y[rows]
  return int((right & mask).sum())


@pytest.fixture(scope='module')
def chosen(tmp_path_factory, quick_compiler):
  return record(validating(), tmp_path_factory.mktemp('validation'), [4, 5])


@pytest.fixture(scope='module')
def kept(tmp_path_factory, quick_compiler):
  return record(keeping(), tmp_path_factory.mktemp('lg_fedavg'), [FIRST, 4, 5])


# ---- chosen on validation


def models_by_hand(experiment, state, client):
  """Return {view: model} of one client after a round."""
  personalize = jax.jit(experiment.stages[-1].algorithm.personalize)
  train_data = experiment.train
  own = trees.gather((train_data.index, train_data.count), client)
  key = random_streams(experiment.settings.seed)['evaluation']
  return personalize(
    state.server,
    trees.gather(state.clients, client),
    train_data._replace(index=own[0], count=own[1]),
    jax.random.fold_in(key, client),
  )


def test_the_choice_is_the_best_mean_on_validation(chosen):
  """Over rounds and lengths of fine-tuning; of equal ones the first."""
  experiment, means = chosen.experiment, {}
  for number, state in chosen.states.items():
    models = [models_by_hand(experiment, state, k) for k in range(6)]
    for view in CANDIDATES:
      means[number, view] = [
        np.mean(
          [
            100 * correct_of(data, k, own[view]) / int(data.count[k])
            for k, own in enumerate(models)
          ]
        )
        for data in (experiment.data.splits['validation'], experiment.test)
      ]
  pairs = [(n, view) for n in range(1, 7) for view in CANDIDATES]
  number, view = max(pairs, key=lambda pair: means[pair][0])  # the first
  got, last = chosen.result['validation'], chosen.result['last']
  on_validation, on_tests = means[number, view]
  assert (got['round'], got['view']) == (number, view)
  assert got['validation_accuracy'] == pytest.approx(on_validation)
  assert got['views'][view]['mean'] == pytest.approx(on_tests)
  want = means[6, 'finetuned'][1]
  assert last['views']['finetuned']['mean'] == pytest.approx(want)
  # A choice that is neither end of the run, nor the one by the tests.
  assert 1 < number < 6 and view != 'finetuned'
  assert number != max(range(1, 7), key=lambda n: means[n, 'finetuned'][1])


def test_clients_adapt_once_for_the_scores_of_the_last_round(
  monkeypatch, tmp_path
):
  calls, validation = [], Evaluator.validation
  monkeypatch.setattr(
    Evaluator, 'validation', lambda *args: calls.append(1) or validation(*args)
  )
  train(validating(rounds=1, select='last'), tmp_path)
  assert len(calls) == 1


def evaluator_of(experiment, scores):
  how = {'validation': lambda *args: scores}
  return SimpleNamespace(experiment=experiment, **how)


def test_of_equal_rounds_and_views_the_first_is_chosen(chosen):
  same = dict.fromkeys(CANDIDATES, Scores(np.full(6, 2), np.full(6, 4)))
  evaluator = evaluator_of(chosen.experiment, same)
  state = chosen.states[4]
  best = state.chosen._replace(accuracy=np.array(-1.0))
  for number in 7, 8:
    best, *_ = choose(evaluator, best, 0, state[:2], number)
    assert (best.round, best.view, best.accuracy) == (7, 0, 50)


def test_another_measure_may_choose_and_lower_may_be_better(chosen):
  settings = replace(chosen.experiment.settings, tune_by='loss')
  outline = chosen.experiment.outline._replace(settings=settings)
  experiment = chosen.experiment._replace(outline=outline)
  right, best = Scores(np.full(6, 2), np.full(6, 4)), chosen.states[4].chosen
  best = best._replace(round=np.array(-1), accuracy=np.array(-1.0))
  rounds = (np.nan,) * 3, (3.0, 2.0, 2.0), (1.5, 4.0, 4.0), (2.0,) * 3
  for number, losses in enumerate(rounds, 6):
    scores = {
      view: right._replace(loss=np.full(6, loss))
      for view, loss in zip(CANDIDATES, losses, strict=True)
    }
    evaluator = evaluator_of(experiment, scores)
    best, *_ = choose(evaluator, best, 0, chosen.states[4][:2], number)
    if number == 7:
      assert (best.round, best.view, best.accuracy) == (7, 1, 2.0)
  assert (best.round, best.view, best.accuracy) == (8, 0, 1.5)
  message = refused(chooser, 'lass', ())
  assert "tune_by: got 'lass'" in message and 'mean loss?' in message


def test_the_result_is_that_of_the_chosen_round(chosen):
  """Its numbers, every client, its models, and what analyses load."""
  experiment, result = chosen.experiment, chosen.result
  state = chosen.states[result['validation']['round']]
  assert result['views'] == result['validation']['views']
  assert list(result['views']) == ['initial', *CANDIDATES]
  for view, scores in scores_of(chosen.path).items():
    mean = np.mean(100 * scores.correct / scores.count)
    assert result['views'][view]['mean'] == pytest.approx(mean)
  states = load_states(experiment, chosen.path, print)
  assert_same_bits(states, (state.server, state.clients))
  models = models_of(chosen.path)
  got = [*models['global.npz'].values()]
  assert_same_bits(got, jax.tree.leaves(state.server.params))
  want = models_by_hand(experiment, state, 2)['finetuned_3']
  got = models['finetuned_3_client2.npz'].values()
  for leaf, wanted in zip(got, jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(leaf, wanted, rtol=1e-5, atol=1e-6)


# ---- kept by every client


def models_after(states, number):
  """Return every client's model after a round of the second stage."""
  server, clients = states[number].server, states[number].clients
  if number == FIRST:  # copies of FedAvg's
    return [server.params] * 10
  return [
    {'body': trees.gather(clients['body'], k), 'head': server.params['head']}
    for k in range(10)
  ]


@pytest.fixture(scope='module')
def best(kept):
  """Return (correct, round, model) of every client, and the number of ties."""
  found, ties = [(-1, -1, {})] * 10, 0
  for number in range(FIRST, ROUNDS + 1):
    for k, model in enumerate(models_after(kept.states, number)):
      correct = correct_of(kept.experiment.test, k, model)
      ties += correct == found[k][0]
      if correct >= found[k][0]:
        found[k] = correct, number, model
  return found, ties


def test_every_client_keeps_its_best_model(kept, best):
  """The start is a candidate, and a tie replaces the earlier one."""
  found, ties = best
  got = restored(kept.experiment, kept.path).kept
  correct, rounds, models = zip(*found, strict=True)
  assert got.correct.tolist() == [*correct]
  assert_same_bits(
    got.models, jax.tree.map(lambda *rows: np.stack(rows), *models)
  )
  assert FIRST in rounds and len({*rounds}) > 2 and ties > 3


def test_the_mean_head_is_put_back_before_the_last_evaluation(kept, best):
  models = [model for _, _, model in best[0]]
  head = jax.tree.map(
    lambda *leaves: sum(leaves) / 10, *[own['head'] for own in models]
  )
  test = kept.experiment.test
  correct = [
    correct_of(test, k, {'body': own['body'], 'head': head})
    for k, own in enumerate(models)
  ]
  result = kept.result['test_best']['initial']
  mean = np.mean(100 * np.array(correct) / np.asarray(test.count))
  assert result['finished']['mean'] == pytest.approx(mean)
  assert result['finished']['mean'] != result['each']['mean']


# ---- both


@pytest.mark.parametrize(
  ('name', 'step'), [('chosen', 4), ('kept', FIRST), ('kept', 4)]
)
def test_a_killed_run_ends_with_the_same_best(name, step, request):
  """Within the last stage, or between both, when the start is evaluated."""
  recorded = request.getfixturevalue(name)
  paths = recorded.folder / f'killed{step}', recorded.path
  train(recorded.experiment, paths[0], recorded.program)
  one, other = (restored(recorded.experiment, path) for path in paths)
  assert_same_bits(one.kept, other.kept)
  assert_same_bits(one.chosen, other.chosen)
  one, other = map(run_dir.load_result, paths)
  assert {**one, 'seconds': 0} == {**other, 'seconds': 0}


def test_scores_that_were_changed_or_lost_are_refused(chosen, tmp_path):
  path = shutil.copytree(chosen.folder / 'killed5', tmp_path / 'damaged')
  (path / 'scores' / '2.npz').unlink()
  message = refused(train, chosen.experiment, path, chosen.program)
  assert 'scores' in message and 'round 5' in message

"""The round that validation chooses, against a computation by hand from the
checkpoint of every round."""

import functools
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from small_runs import (
  TASK,
  make_experiment,
  make_settings,
  models_of,
  restored,
  scores_of,
)

from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.core import trees
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import finalize
from fedjax_pfl.training.best_rounds import Chosen, choose
from fedjax_pfl.training.finalize import ModelExport
from fedjax_pfl.training.loop import train, train_many
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import random_streams
from fedjax_pfl.training.views import candidate_views, final_views

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROUNDS, CLIENTS = 6, 6
KILLED = 4
CANDIDATES = ('finetuned_1', 'finetuned_3', 'finetuned')
SETTINGS = {
  'algorithm': 'fedavg',
  'seed': 1,
  'num_clients': CLIENTS,
  'shards_per_client': 5,
  'rounds': ROUNDS,
  'learning_rate': 0.5,
  'validation_fraction': 0.3,
  'select': 'validation',
  'views': ('initial', 'finetuned'),
  'eval_views': ('finetuned',),
  'finetune': {'epochs': (5, 1, 3), 'learning_rate': 0.6},
  'log_every': 1,
  'eval_every': 1,
  'checkpoint_every': 1,
  'save_clients': (2,),
}


def make(**changes):
  return make_experiment(**{**SETTINGS, **changes})


@functools.cache
def program():
  """Return the compiled functions of all runs that differ in no shape."""
  return Program(make())


@pytest.fixture(scope='module')
def played(tmp_path_factory, quick_compiler):
  """Return an experiment, the folder of its runs, its state by round.

  The folder has the run, and a copy as a kill leaves it.
  """
  experiment, states = make(), {}
  folder = tmp_path_factory.mktemp('validation')

  def save(self, step, state, save=Run.save_checkpoint):
    save(self, step, state)
    states[step] = jax.tree.map(np.array, state)
    if step == KILLED:
      shutil.copytree(folder / 'run', folder / 'killed')

  with mock.patch.object(Run, 'save_checkpoint', save):
    train(experiment, folder / 'run', program())
  return experiment, folder, states


def models_by_hand(experiment, state, client):
  """Return {view: model} of one client after a round."""
  algorithm = experiment.stages[-1].algorithm
  train = experiment.train
  own = train._replace(index=train.index[client], count=train.count[client])
  key = random_streams(experiment.settings.seed)['evaluation']
  return jax.jit(algorithm.personalize)(
    *(state.server, trees.gather(state.clients, client), own),
    jax.random.fold_in(key, client),
  )


def accuracy_by_hand(data, client, model):
  """Return the accuracy of a model on examples of one client, in percent."""
  rows = data.index[client, : data.count[client]]
  x = TASK.normalise(data.x[rows], jax.random.key(0))
  logits = TASK.logits(model, x, jnp.ones(len(rows)))
  return 100 * float((logits.argmax(1) == data.y[rows]).sum()) / len(rows)


def means_by_hand(experiment, state):
  """Return the mean over clients on validation and on tests, by view."""
  found = {view: ([], []) for view in CANDIDATES}
  for client in range(CLIENTS):
    models = models_by_hand(experiment, state, client)
    for view, lists in found.items():
      for data, one in zip(
        (experiment.validation, experiment.test), lists, strict=True
      ):
        one.append(accuracy_by_hand(data, client, models[view]))
  return {view: [np.mean(one) for one in found[view]] for view in CANDIDATES}


def test_the_choice_is_the_best_mean_on_validation(played):
  """Over rounds and lengths of fine-tuning; of equal ones the first."""
  experiment, folder, states = played
  means = {n: means_by_hand(experiment, states[n]) for n in states}
  best = max(means[n][view][0] for n in means for view in CANDIDATES)
  number, view = next(
    (n, view)
    for n in range(1, ROUNDS + 1)
    for view in CANDIDATES
    if means[n][view][0] == best
  )
  result = run_dir.load_result(folder / 'run')
  got = result['validation']
  assert (got['round'], got['view']) == (number, view)
  assert got['validation_accuracy'] == pytest.approx(best)
  assert got['views'][view]['mean'] == pytest.approx(means[number][view][1])
  last = result['last']
  assert (last['round'], last['view']) == (ROUNDS, 'finetuned')
  want = means[ROUNDS]['finetuned'][1]
  assert last['views']['finetuned']['mean'] == pytest.approx(want)
  # A choice that is neither end of the run, nor the one by the tests.
  assert 1 < number < ROUNDS and view != 'finetuned'
  on_tests = [means[n]['finetuned'][1] for n in range(1, ROUNDS + 1)]
  assert 1 + int(np.argmax(on_tests)) != number
  for line in run_dir.load_metrics(folder / 'run'):
    assert {v: line[f'validation/{v}'] for v in CANDIDATES} == {
      v: pytest.approx(means[line['round']][v][0]) for v in CANDIDATES
    }


def test_the_result_is_that_of_the_chosen_round(played):
  """Its numbers, every client, its models, and what analyses load."""
  experiment, folder, states = played
  result = run_dir.load_result(folder / 'run')
  number = result['validation']['round']
  assert result['views'] == result['validation']['views']
  assert list(result['views']) == ['initial', *CANDIDATES]
  for view, scores in scores_of(folder / 'run').items():
    mean = np.mean(100 * scores.correct / scores.count)
    assert result['views'][view]['mean'] == pytest.approx(mean)
  validation = run_dir.load_clients(folder / 'run').validation
  on_validation = np.mean(100 * validation.correct / validation.count)
  assert on_validation == result['validation']['validation_accuracy']
  states_then = states[number].server, states[number].clients
  assert_same_bits(load_states(experiment, folder / 'run', print), states_then)
  models = models_of(folder / 'run')
  got = models['global.npz'].values()
  assert_same_bits([*got], jax.tree.leaves(states[number].server.params))
  want = models_by_hand(experiment, states[number], 2)['finetuned_3']
  got = models['finetuned_3_client2.npz'].values()
  for leaf, wanted in zip(got, jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(leaf, wanted, rtol=1e-5, atol=1e-6)


def test_a_killed_run_makes_the_same_choice(played):
  experiment, folder, _ = played
  train(experiment, folder / 'killed', program())
  assert_same_choice(experiment, folder / 'killed', folder / 'run')


def assert_same_choice(experiment, got, want):
  one, other = (restored(experiment, path).chosen for path in (got, want))
  assert_same_bits(one, other)
  one, other = (run_dir.load_result(path) for path in (got, want))
  for name in ('select', 'last', 'validation', 'views'):
    assert one[name] == other[name]


def test_the_last_round_is_the_result_unless_told_otherwise(played, tmp_path):
  """With the same training, the same choice, and its numbers beside it."""
  experiment, folder, states = played
  result = train(make(select='last'), tmp_path, program())
  other = run_dir.load_result(folder / 'run')
  assert result['views'] == result['last']['views'] == other['last']['views']
  assert result['validation'] == other['validation']
  validation = run_dir.load_clients(tmp_path).validation
  last = run_dir.load_metrics(tmp_path)[-1]['validation/finetuned']
  assert np.mean(100 * validation.correct / validation.count) == last
  assert last != result['validation']['validation_accuracy']
  assert result['test_best'] == other['test_best']
  ours = restored(experiment, tmp_path)._replace(seconds=())
  assert_same_bits(ours, states[ROUNDS]._replace(seconds=()))
  got = models_of(tmp_path)['global.npz'].values()
  assert_same_bits([*got], jax.tree.leaves(states[ROUNDS].server.params))


def test_a_last_round_that_is_chosen_is_evaluated_once(tmp_path, monkeypatch):
  made = []

  class Counted(ModelExport):
    def __init__(self, *arguments):
      made.append(self)
      super().__init__(*arguments)

  monkeypatch.setattr(finalize, 'ModelExport', Counted)
  result = train(make(rounds=1, eval_every=9), str(tmp_path / 'run'))
  assert len(made) == 1
  assert result['validation']['round'] == result['last']['round'] == 1
  assert result['validation']['views'] == result['last']['views']
  assert (tmp_path / 'run' / 'model').is_dir()


def test_without_validation_there_is_no_choice(tmp_path):
  experiment = make(validation_fraction=0.0, select='last', rounds=1)
  result = train(experiment, tmp_path)
  assert restored(experiment, tmp_path).chosen == ()
  assert list(result['views']) == ['initial', 'finetuned']
  assert not {'select', 'last', 'validation'} & result.keys()
  (line,) = run_dir.load_metrics(tmp_path)
  assert not [name for name in line if name.startswith('validation')]


def test_the_first_of_equal_rounds_and_views_is_kept():
  def play(*rounds):
    chosen = Chosen(*map(np.array, (-1, 0, -1.0)), np.zeros(1), np.zeros(1))
    for number, means in enumerate(rounds, 1):
      now = np.full(1, number)
      means = dict(zip('abc', means, strict=True))
      chosen = choose(chosen, means, number, now, now)
    assert chosen.server == chosen.clients == max(chosen.round, 0)
    return int(chosen.round), int(chosen.view), float(chosen.accuracy)

  assert play() == (-1, 0, -1.0)
  assert play((0.0, 0.0, 0.0)) == (1, 0, 0.0)
  assert play((5.0, 7.0, 7.0), (7.0, 7.0, 7.0)) == (1, 1, 7.0)
  assert play((5.0, 7.0, 6.0), (1.0, 2.0, 8.0), (8.0, 8.0, 8.0)) == (2, 2, 8.0)


@pytest.mark.parametrize(
  ('changes', 'final', 'candidates'),
  [
    ({}, ('initial', *CANDIDATES), CANDIDATES),
    ({'validation_fraction': 0.0, 'select': 'last'}, SETTINGS['views'], ...),
    ({'views': ('initial',)}, ('initial',), ('initial',)),
    (
      {'views': ('finetuned', 'finetuned_1', 'initial')},
      ('finetuned_1', 'finetuned_3', 'finetuned', 'initial'),
      CANDIDATES,
    ),
    (
      {'views': ('initial', 'mix_1.0', 'mix_0.0', 'mix_0.5')},
      ('initial', 'mix_1.0', 'mix_0.0', 'mix_0.5'),
      ('mix_0.0', 'mix_0.5', 'mix_1.0'),
    ),
  ],
)
def test_the_views_among_which_validation_chooses(changes, final, candidates):
  settings = parse_config(make_settings(**{**SETTINGS, **changes}))
  assert final_views(settings) == final
  if candidates is not ...:
    assert candidate_views(settings) == candidates


def test_a_run_of_no_round_chooses_what_it_begins_with(tmp_path):
  result = train(make(rounds=0, init_from='elsewhere'), tmp_path)
  assert result['validation']['round'] == result['last']['round'] == 0
  assert result['validation']['validation_accuracy'] >= 0


@pytest.mark.long
def test_clients_on_the_host_make_the_same_choice(played, tmp_path):
  """Of a method whose clients have states, which rounds write over there."""
  one, other = tmp_path / 'device', tmp_path / 'host'
  changes = {'algorithm': 'ditto', 'views': ('initial', 'personal')}
  changes['eval_views'] = ('initial',)
  train(make(**changes), one)
  train(make(**changes, clients_placement='host'), other)
  assert_same_choice(make(**changes), other, one)
  assert run_dir.load_result(one)['validation']['view'] == 'personal'


@pytest.mark.long
def test_seeds_make_their_own_choices(played, tmp_path):
  experiments = [make(seed=seed) for seed in (1, 0)]
  paths = [tmp_path / '1', tmp_path / '0']
  train_many(experiments, paths)
  assert_same_choice(experiments[0], paths[0], played[1] / 'run')
  own, other = (run_dir.load_result(path)['validation'] for path in paths)
  assert own['validation_accuracy'] != other['validation_accuracy']

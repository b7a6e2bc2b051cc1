"""Several runs of one program: seeds, and settings that differ in numbers.

Each has the bits that it has alone, but where Python computes with a number
(1 - hp.beta, Adam's momentum): there it is equal up to rounding.
"""

import jax
import numpy as np
import pytest
from helpers import every_method
from small_runs import (
  SETTINGS,
  assert_same_run,
  make_experiment,
)

from configs import digits
from fedjax_pfl import algorithms
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import replace
from fedjax_pfl.settings.validate import TRACED, flat_settings, traced_names
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.many_runs import share_programs, train_many
from fedjax_pfl.training.program import Program

pytestmark = pytest.mark.usefixtures('quick_compiler')
CHEAP = {'views': ('initial',), 'eval_views': ()}


def make(**changes):
  return make_experiment(**{**CHEAP, **changes})


def vary(experiment, **changes):
  """Return the experiment with other numbers; hp__mu is hp.mu."""
  changes = {name.replace('__', '.'): own for name, own in changes.items()}
  hp = {**experiment.settings.hp}
  for name in [name for name in changes if name.startswith('hp.')]:
    hp[name.removeprefix('hp.')] = changes.pop(name)
  settings = replace(experiment.settings, changes, hp=hp)
  return experiment.with_settings(settings)


def divide(experiments):
  """Return which experiments share a program."""
  return sorted(places for _, places in share_programs(experiments))


def directories(folder, number=2):
  return [folder / str(place) for place in range(number)]


@pytest.fixture(scope='module')
def swept(tmp_path_factory, quick_compiler):
  """Return two seeds of two settings, the folder of their runs, the log."""
  folder, logged = tmp_path_factory.mktemp('swept'), []
  changes = {'algorithm': 'fedprox', 'rounds': 2, 'checkpoint_every': 1}
  changes |= {'eval_every': 1, 'validation_fraction': 0.2}
  seeds = [make(**changes, seed=seed) for seed in (0, 1)]
  experiments = [
    vary(one, learning_rate=rate, hp__mu=mu)
    for rate, mu in ((0.02, 0.01), (0.3, 0.5))
    for one in seeds
  ]
  train_many(experiments, directories(folder, 4), logged.append)
  return experiments, folder, logged


@pytest.fixture(scope='module')
def alone(swept):
  """Return the program of the last of them alone."""
  return Program(swept[0][3])


# ---- the numbers


def test_a_setting_has_the_bits_that_it_has_alone(swept, alone, tmp_path):
  experiments, folder, logged = swept
  assert divide(experiments) == [[0, 1, 2, 3]]
  assert logged == ['fedprox: training seed 0, 1 of several settings, 4 runs']
  train(experiments[3], tmp_path, alone)
  assert_same_run(folder / '3', tmp_path)
  lines = [run_dir.load_metrics(path)[-1] for path in directories(folder, 4)]
  assert len({line['loss'] for line in lines}) == 4


@pytest.mark.long
def test_the_second_has_the_bits_that_it_has_alone(tmp_path):
  """Clients who fail and who come later know the numbers."""
  changes = {'algorithm': 'ditto', 'views': ('personal',), 'rounds': 1}
  changes |= {'unseen_clients': 2, 'dropout_rate': 0.5, 'save_clients': (0,)}
  experiments = [vary(make(**changes), hp__lam=lam) for lam in (0.5, 20.0)]
  train_many(experiments, directories(tmp_path))
  train(experiments[1], tmp_path / 'alone')
  assert_same_run(tmp_path / '1', tmp_path / 'alone')


def test_runs_whose_functions_hold_the_seed_share_nothing():
  """The draw of the server's examples is part of the program."""
  changes = {'server_data_fraction': 0.3, 'server_optimizer': 'sgd'}
  seeds = [make(algorithm='fedavg', **changes, seed=seed) for seed in (0, 1)]
  assert divide(seeds) == [[0], [1]]


def test_predictions_have_the_numbers_of_their_setting(tmp_path):
  """kNN-Per uses lam where it predicts, and nowhere else."""
  first = make(algorithm='knn_per', rounds=1, views=('neighbours',))
  both = [vary(first, hp__lam=lam) for lam in (0.2, 0.9)]
  assert divide(both) == [[0, 1]]
  low, high = train_many(both, directories(tmp_path))
  alone = train(both[1], tmp_path / 'alone')
  assert high['views'] == alone['views'] != low['views']


# ---- which share a program


def test_what_changes_a_shape_or_a_decision_has_a_program_of_its_own():
  first = make(algorithm='fedprox')
  assert divide(
    [
      first,
      vary(first, momentum=0.0),
      vary(first, weight_decay=0.1, learning_rate=0.5),
      make(algorithm='fedprox', batch_size=9),
      vary(first, momentum=0.5, hp__mu=0.3),
      vary(first, hp__mu=0.0),
      make(algorithm='fedprox', seed=1),
      make(algorithm='fedprox', init_from='b'),
      vary(make(algorithm='fedprox', debug=True), hp__mu=0.3),
      vary(first, momentum=0.0, weight_decay=0.1),
    ]
  ) == [[0, 4, 6], [1], [2], [3], [5], [7], [8], [9]]


@every_method(1)
def test_the_numbers_that_a_method_declares_are_arguments(name):
  """Of its rounds and its evaluation, which are traced with them."""
  changes = {'num_clients': 20} if name == 'fedconcat' else {}
  settings = digits.get_config(name).to_dict() | SETTINGS | changes
  if name == 'centralized':
    settings |= {'num_clients': 1, 'save_clients': (0,), 'client_fraction': 1.0}
  if name == 'per_fedavg':
    settings['hp'] = {'beta': 0.1}
  experiment = make_experiment(**settings)
  fields = flat_settings(experiment.settings)
  hp = algorithms.load(name).HParams.ruled.values()
  names = *TRACED, *(stated.name for stated in hp if stated.traced)
  declared = [name for name in names if fields[name] is not None]
  changed = {own: 0.8 * fields[own] or 0.8 for own in declared}
  experiment = vary(experiment, **changed)
  assert {*traced_names(experiment.settings)} == {*changed}
  program, ids = Program(experiment, declared), np.arange(3)
  shapes = stage_shapes(experiment.stages, experiment.train)
  for place, (stage, *states) in enumerate(shapes):
    data = jax.eval_shape(stage.prepare_data, states[0], experiment.train)
    numbers, key = program.numbers_of(experiment.settings), jax.random.key(0)
    rounds = program.rounds(place, states[0])
    jax.eval_shape(rounds, numbers, *states, ids[None], data, key)
  views = view_names(stage.algorithm, *states, experiment.train)
  evaluate = program.evaluation(place, tuple(views), scoring='exact')
  server, eval_data = (states[0], numbers), experiment.eval_data
  jax.eval_shape(evaluate, server, states[1], ids, *eval_data, key)

"""Settings that differ in numbers: which share a program, and that each has the
bits that it has alone."""

import shutil
from unittest import mock

import jax.numpy as jnp
import pytest
from helpers import assert_close, every_method
from small_runs import (
  SETTINGS,
  assert_same_run,
  make_experiment,
  restored,
)

from configs import digits
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import replace
from fedjax_pfl.settings.traced import flat_settings, traced_names
from fedjax_pfl.training import one_program as module
from fedjax_pfl.training.build import with_numbers_of
from fedjax_pfl.training.drivers import multi_seed as driver
from fedjax_pfl.training.loop import train, train_seeds
from fedjax_pfl.training.one_program import divide

CHEAP = {'views': ('initial',), 'eval_views': ()}


def make(**changes):
  return make_experiment(**{**CHEAP, **changes})


def vary(experiment, **changes):
  """Return the experiment with other numbers; hp__mu is hp.mu."""
  changes = {name.replace('__', '.'): own for name, own in changes.items()}
  hp = {**experiment.settings.hp}
  for name in [name for name in changes if name.startswith('hp.')]:
    hp[name.removeprefix('hp.')] = changes.pop(name)
  return with_numbers_of(
    experiment, replace(experiment.settings, changes, hp=hp)
  )


# ---- the numbers


@pytest.fixture(scope='module')
def swept(tmp_path_factory):
  """Return four settings, and the folder of their runs.

  In `killed` the first has a checkpoint, and the others have none.
  """
  folder = tmp_path_factory.mktemp('swept')
  first = make(
    algorithm='fedprox',
    rounds=2,
    eval_every=1,
    checkpoint_every=1,
    validation_fraction=0.2,
  )
  experiments = [
    vary(first, learning_rate=rate, hp__mu=mu)
    for rate in (0.02, 0.3)
    for mu in (0.01, 0.5)
  ]

  def copy_when_saved(self, step, tree, save=Run.save_checkpoint):
    save(self, step, tree)
    if step == 1 and self.path.name == '0':
      shutil.copytree(folder / 'whole', folder / 'killed')

  with mock.patch.object(Run, 'save_checkpoint', copy_when_saved):
    train_seeds(experiments, [folder / 'whole' / str(n) for n in range(4)])
  return experiments, folder


def test_a_setting_has_the_bits_that_it_has_alone(swept, tmp_path):
  experiments, folder = swept
  assert divide(experiments) == [[0, 1, 2, 3]]
  train(experiments[3], tmp_path)
  assert_same_run(folder / 'whole' / '3', tmp_path)
  losses = [
    run_dir.load_metrics(folder / 'whole' / str(n))[-1]['loss']
    for n in range(4)
  ]
  assert len({*losses}) == 4


def test_settings_that_were_killed_end_with_the_same_bits(swept):
  experiments, folder = swept
  train_seeds(experiments, [folder / 'killed' / str(n) for n in range(4)])
  for number in range(4):
    name = str(number)
    assert_same_run(folder / 'killed' / name, folder / 'whole' / name)


@pytest.mark.long
def test_clients_who_fail_and_who_come_later_know_the_numbers(
  tmp_path, quick_compiler
):
  first = make(
    algorithm='ditto',
    rounds=1,
    unseen_clients=2,
    dropout_rate=0.5,
    save_clients=(0,),
    views=('personal',),
  )
  experiments = [vary(first, hp__lam=lam) for lam in (0.5, 20.0)]
  train_seeds(experiments, [tmp_path / '0', tmp_path / '1'])
  train(experiments[1], tmp_path / 'alone')
  assert_same_run(tmp_path / '1', tmp_path / 'alone')


def test_checkpoints_are_those_of_a_single_run(swept):
  """Without the numbers: either way of training continues the other's."""
  experiments, folder = swept
  state = restored(experiments[1], folder / 'whole' / '1')
  assert state.server._fields == ('round', 'params')
  assert state.chosen.server._fields == ('round', 'params')


def test_side_by_side_they_are_the_same_but_for_rounding(
  tmp_path, quick_compiler
):
  first = make(algorithm='fedlc', rounds=1, learning_rate=0.3)
  experiments = [vary(first, hp__tau=own) for own in (0.5, 2.0)]
  with mock.patch.object(driver, 'num_side_by_side', lambda *args: 2):
    train_seeds(experiments, [tmp_path / '0', tmp_path / '1'])
  train(experiments[1], tmp_path / 'alone')
  got, want = (restored(experiments[1], tmp_path / n) for n in ('1', 'alone'))
  assert_close(got.server.params, want.server.params)
  other = restored(experiments[0], tmp_path / '0').server.params['head']
  gap = other['kernel'] - want.server.params['head']['kernel']
  assert jnp.abs(gap).max() > 1e-3


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
    ]
  ) == [[0, 4, 5, 6], [1], [2], [3]]


def test_a_number_that_a_method_needs_as_a_float_is_no_argument():
  """Of two numbers the other one is."""
  first = make(algorithm='fedprox')
  experiments = [
    vary(first, learning_rate=rate, hp__mu=mu)
    for rate in (0.1, 0.2)
    for mu in (0.01, 0.02)
  ]

  def build(settings, task, make=module.make_stages):
    jnp.maximum(settings.hp['mu'], 0.0)  # raises ValueError if it is traced
    return make(settings, task)

  with mock.patch.object(module, 'make_stages', build):
    assert divide(experiments) == [[0, 2], [1, 3]]


@every_method(9)
def test_every_number_of_a_method_can_be_an_argument(name):
  changes = {'num_clients': 20} if name == 'fedconcat' else {}
  settings = digits.get_config(name).to_dict() | SETTINGS | changes
  settings['lr_milestones'] = ()  # then the rate is no array
  if name == 'centralized':
    settings |= {'num_clients': 1, 'save_clients': (0,), 'client_fraction': 1.0}
  if name == 'per_fedavg':
    settings['hp'] = {'beta': 0.1}
  experiment = make_experiment(**settings)
  fields = flat_settings(experiment.settings)
  names = traced_names(experiment.settings)
  assert 'learning_rate' in names
  # Not those with which the method decides: 0 and 1 often are.
  low, high = (
    vary(experiment, **{one: fields[one] * factor or factor for one in names})
    for factor in (0.8, 0.9)
  )
  assert divide([low, high]) == [[0, 1]]

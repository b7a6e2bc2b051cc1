"""Several runs of one program: seeds, and settings that differ in numbers.

Each has the bits that it has alone.
"""

import contextlib
import io
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, every_method
from small_runs import (
  ROUNDS,
  SETTINGS,
  assert_same_run,
  make_experiment,
  restored,
  server_of,
  snapshot,
  with_algorithm,
)

from configs import digits
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import replace
from fedjax_pfl.settings.traced import flat_settings, traced_names
from fedjax_pfl.training import divergence
from fedjax_pfl.training import program as module
from fedjax_pfl.training.build import with_numbers_of
from fedjax_pfl.training.loop import train, train_many
from fedjax_pfl.training.program import share_programs
from fedjax_pfl.training.state import random_streams

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
  return with_numbers_of(
    experiment, replace(experiment.settings, changes, hp=hp)
  )


def divide(experiments):
  return sorted(places for _, places in share_programs(experiments))


def directories(folder, number=2):
  return [folder / str(place) for place in range(number)]


class Killed(BaseException):
  """The end of a process, after a checkpoint."""


@contextlib.contextmanager
def killed_after(name, step):
  """Raise Killed once the run of this name has saved the checkpoint."""

  def save(self, number, tree, save=Run.save_checkpoint):
    save(self, number, tree)
    if number == step and self.path.name == name:
      raise Killed

  with mock.patch.object(Run, 'save_checkpoint', save), pytest.raises(Killed):
    yield


@pytest.fixture(scope='module')
def ragged(tmp_path_factory, quick_compiler):
  """Return seeds whose clients have states and other sizes; runs; output."""
  folder, output = tmp_path_factory.mktemp('ragged'), io.StringIO()
  changes = {'partition': 'dirichlet', 'dirichlet_beta': 0.5, 'rounds': 2}
  experiments = [
    make(algorithm='ditto', views=('personal',), seed=seed, **changes)
    for seed in (0, 1)
  ]
  experiments.sort(key=lambda one: -one.train.index.shape[1])
  with contextlib.redirect_stdout(output):
    train_many(experiments, directories(folder))
  return experiments, folder, output.getvalue()


@pytest.fixture(scope='module')
def swept(tmp_path_factory):
  """Return two seeds of two settings, and the folder of their runs."""
  folder = tmp_path_factory.mktemp('swept')
  changes = {'algorithm': 'fedprox', 'rounds': 2, 'checkpoint_every': 1}
  seeds = [
    make(**changes, eval_every=1, validation_fraction=0.2, seed=seed)
    for seed in (0, 1)
  ]
  numbers = (
    {'learning_rate': 0.02, 'hp__mu': 0.01},
    {
      'learning_rate': 0.3,
      'hp__mu': 0.5,
    },
  )
  experiments = [vary(one, **own) for own in numbers for one in seeds]
  train_many(experiments, directories(folder, 4))
  return experiments, folder


# ---- the numbers


def test_ragged_seeds_have_the_numbers_that_they_have_alone(ragged, tmp_path):
  experiments, folder, _ = ragged
  wide, narrow = experiments
  assert wide.train.index.shape[1] > narrow.train.index.shape[1]
  train(narrow, tmp_path)
  assert_same_run(folder / '1', tmp_path)
  assert_same_bits(
    restored(narrow, folder / '1')[:2], restored(narrow, tmp_path)[:2]
  )
  assert run_dir.load_config(tmp_path) == run_dir.load_config(folder / '1')


def test_a_setting_has_the_bits_that_it_has_alone(swept, tmp_path):
  experiments, folder = swept
  assert divide(experiments) == [[0, 1, 2, 3]]
  train(experiments[3], tmp_path)
  assert_same_run(folder / '3', tmp_path)
  lines = [run_dir.load_metrics(path)[-1] for path in directories(folder, 4)]
  assert len({line['loss'] for line in lines}) == 4


def test_runs_that_were_killed_end_with_the_same_bits(swept, tmp_path):
  """Whichever of the two functions began them, and goes on."""
  experiments, folder = swept
  with killed_after('1', 1):
    train_many(experiments, directories(tmp_path, 4))
  assert run_dir.is_finished(tmp_path / '0')
  with killed_after('2', 1):
    train(experiments[2], tmp_path / '2')
  train(experiments[1], tmp_path / '1')
  before = snapshot(tmp_path / '0') | snapshot(tmp_path / '1')
  results = train_many(experiments, directories(tmp_path, 4))
  assert before.items() <= snapshot(tmp_path).items()
  for place, result in enumerate(results):
    assert_same_run(tmp_path / str(place), folder / str(place))
    assert result == run_dir.load_result(tmp_path / str(place))


@pytest.mark.long
def test_clients_who_fail_and_who_come_later_know_the_numbers(tmp_path):
  changes = {'unseen_clients': 2, 'dropout_rate': 0.5, 'save_clients': (0,)}
  first = make(algorithm='ditto', rounds=1, views=('personal',), **changes)
  experiments = [vary(first, hp__lam=lam) for lam in (0.5, 20.0)]
  train_many(experiments, directories(tmp_path))
  train(experiments[1], tmp_path / 'alone')
  assert_same_run(tmp_path / '1', tmp_path / 'alone')


@pytest.mark.long
def test_a_server_with_data_of_its_own_keeps_them(tmp_path):
  """The draw of its examples is part of the program: no other seed's."""
  changes = {'algorithm': 'fedavg', 'server_data_fraction': 0.3, 'rounds': 1}
  experiments = [make(seed=seed, **changes) for seed in (0, 1)]
  train_many(experiments, directories(tmp_path))
  train(experiments[1], tmp_path / 'alone')
  assert_same_run(tmp_path / '1', tmp_path / 'alone')


# ---- what is logged, recorded and refused


def test_seeds_are_logged(ragged, swept, capsys):
  _, _, output = ragged
  assert output.splitlines()[0] == 'ditto: training seed 0, 1' or (
    output.splitlines()[0] == 'ditto: training seed 1, 0'
  )
  assert output.count('round 2/2') == 2
  experiments, folder = swept
  train_many(experiments, directories(folder, 4))
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == 'fedprox: training seed 0, 1 of several settings, 4 runs'
  assert lines[1:] == [
    f'{path} is finished: nothing to do.' for path in directories(folder, 4)
  ]


def spoil(experiment, seed, broken):
  """Return the experiment whose server becomes NaN in this seed and round."""
  one = experiment.stages[0].algorithm
  marked, _ = jax.random.split(random_streams(seed)['states'])

  def put_bias(server, part, bias):
    layer = {**server.params[part], 'bias': bias}
    return server._replace(params={**server.params, part: layer})

  def init_server(key):
    server = one.init_server(key)
    return put_bias(server, 'head', jnp.full(10, 7.0 * (key == marked)))

  def aggregate(server, uploads, senders):
    after = one.aggregate(server, uploads, senders)
    params = after.params
    is_spoilt = (after.round == broken) & (params['head']['bias'][0] == 7)
    bias = jnp.where(is_spoilt, jnp.nan, params['body']['bias'])
    return put_bias(after, 'body', bias)

  return with_algorithm(
    experiment, init_server=init_server, aggregate=aggregate
  )


def test_a_seed_that_diverges_is_named_and_the_others_go_on(tmp_path):
  experiments = [
    spoil(make(checkpoint_every=2, eval_every=ROUNDS, seed=seed), 0, broken=4)
    for seed in (0, 1)
  ]
  hot, cool = directories(tmp_path)
  results = train_many(experiments, [hot, cool])
  message = divergence.sentence_of(hot)
  rounds = 'NaN or infinity in rounds 3 to 4 of fedbabu'
  assert f'{rounds}: round 4, in the server state; seed 0, {hot}' in message
  assert results[0] is None and results[1]['status'] == 'finished'
  assert not divergence.sentence_of(cool)
  step, server = server_of(experiments[0], hot)
  assert step == 2
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))


def test_two_runs_in_one_directory(tmp_path):
  with pytest.raises(BadInput) as caught:
    train_many([make(), make(seed=1)], [tmp_path / 'a', tmp_path / 'a'])
  assert str(caught.value) == (
    f'workdirs: got {[str(tmp_path / "a")] * 2}, expected 2 directories, '
    'one for each run. Likely cause: a name without the seed in it.'
  )
  assert not any(tmp_path.iterdir())


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
    ]
  ) == [[0, 4, 5, 6], [1], [2], [3], [7], [8]]


def test_a_number_that_a_method_needs_as_a_float_is_no_argument():
  """Of two numbers the other one is."""
  first = make(algorithm='fedprox')
  experiments = [
    vary(first, learning_rate=rate, hp__mu=mu)
    for rate in (0.1, 0.2)
    for mu in (0.01, 0.02)
  ]

  def build(settings, task, make=module.make_stages):
    float(settings.hp['mu'])  # raises if it is traced
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
  # How many rounds SuPerFed mixes is a length.
  names = {*traced_names(experiment.settings)} - {'hp.phase_start'}
  assert {'learning_rate', 'momentum', 'weight_decay', 'lr_decay'} < names
  low, high = (
    vary(experiment, **{one: fields[one] * factor or factor for one in names})
    for factor in (0.8, 0.9)
  )
  assert divide([low, high]) == [[0, 1]]

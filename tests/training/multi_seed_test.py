"""Several seeds of one experiment: each has the numbers that it has alone."""

import contextlib
import io
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, assert_same_bits
from small_runs import (
  ROUNDS,
  assert_same_run,
  make_experiment,
  restored,
  scores_of,
  server_of,
  snapshot,
  with_algorithm,
)

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.chunking import MEMORY_SHARE, DeviceMemory
from fedjax_pfl.federated.rounds import init_states
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.settings import replace
from fedjax_pfl.training.drivers import choose
from fedjax_pfl.training.drivers import multi_seed as driver
from fedjax_pfl.training.drivers.driver import Call
from fedjax_pfl.training.loop import train, train_seeds
from fedjax_pfl.training.one_program import divide
from fedjax_pfl.training.seed_run import SeedRun, random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')


def make_seeds(**changes):
  """Return two seeds, evaluated in one view unless `changes` differ."""
  cheap = {'views': ('initial',), 'eval_views': (), **changes}
  return [make_experiment(seed=seed, **cheap) for seed in (0, 1)]


def directories(folder):
  return [folder / '0', folder / '1']


@pytest.fixture(scope='module')
def group(tmp_path_factory, quick_compiler):
  """Return two seeds, the folder of their runs, and its output.

  In `killed` the first seed has the checkpoint of round 4, the other has not.
  """
  folder = tmp_path_factory.mktemp('group')
  experiments = [
    one._replace(stages=(one.stages[0]._replace(note='A note.'),))
    for one in make_seeds(eval_views=('initial',))
  ]

  def copy_when_saved(self, step, tree, save=Run.save_checkpoint):
    save(self, step, tree)
    if step == 4 and self.path.name == '0':
      shutil.copytree(folder / 'whole', folder / 'killed')

  output = io.StringIO()
  with (
    mock.patch.object(Run, 'save_checkpoint', copy_when_saved),
    contextlib.redirect_stdout(output),
  ):
    train_seeds(experiments, directories(folder / 'whole'))
  return experiments, folder, output.getvalue()


@pytest.fixture(scope='module')
def ragged(tmp_path_factory, quick_compiler):
  """Return two seeds whose clients have states and other sizes; their runs."""
  folder = tmp_path_factory.mktemp('ragged')
  experiments = make_seeds(
    algorithm='ditto',
    partition='dirichlet',
    dirichlet_beta=0.5,
    rounds=2,
    views=('personal',),
  )
  experiments.sort(key=lambda one: -one.train.index.shape[1])
  train_seeds(experiments, directories(folder))
  return experiments, folder


# ---- the numbers


def test_ragged_seeds_have_the_numbers_that_they_have_alone(ragged, tmp_path):
  experiments, folder = ragged
  wide, narrow = experiments
  assert wide.train.index.shape[1] > narrow.train.index.shape[1]
  train(narrow, tmp_path)
  assert_same_run(folder / '1', tmp_path)
  assert_same_bits(
    restored(narrow, folder / '1')[:2], restored(narrow, tmp_path)[:2]
  )
  assert run_dir.load_config(tmp_path) == run_dir.load_config(folder / '1')


def test_side_by_side_the_numbers_are_the_same(ragged, tmp_path):
  """As on an accelerator with much room."""
  experiments, folder = ragged
  much = mock.Mock(return_value=DeviceMemory(free=10**12, per_client=1))
  with mock.patch.object(driver, 'device_memory', much):
    train_seeds(experiments, directories(tmp_path))
  assert much.call_count == 1
  for name, experiment in zip('01', experiments, strict=True):
    assert_close(
      restored(experiment, tmp_path / name)[:2],
      restored(experiment, folder / name)[:2],
    )
    for line, other in zip(
      run_dir.load_metrics(tmp_path / name),
      run_dir.load_metrics(folder / name),
      strict=True,
    ):
      assert line['loss'] == pytest.approx(other['loss'], rel=1e-4)
      assert line['bytes_down'] == other['bytes_down']


@pytest.mark.long
def test_a_server_with_data_of_its_own_keeps_them(tmp_path):
  """The draw of its examples is part of the program: no other seed's."""
  experiments = make_seeds(
    algorithm='fedavg', server_data_fraction=0.3, rounds=1
  )
  train_seeds(experiments, directories(tmp_path))
  train(experiments[1], tmp_path / 'alone')
  assert_same_run(tmp_path / '1', tmp_path / 'alone')


def test_programs_are_shared_by_seeds_of_one_start():
  experiments = make_seeds(init_from='a')
  assert divide(experiments) == [[0, 1]]
  other = make_experiment(init_from='b')
  assert divide([*experiments, other]) == [[0, 1], [2]]


# ---- how many side by side


def test_as_many_seeds_as_fit_run_side_by_side():
  experiment = make_experiment(algorithm='ditto')
  (stage,) = experiment.stages
  states = init_states(stage.algorithm, experiment.train, jax.random.key(0))
  cohorts = jnp.zeros((2, 3), int)
  call = Call(*states, cohorts, experiment.train, jax.random.key(0))
  of_three = 3 * 1000 + 2 * trees.num_bytes(states)

  def number(free, stage=stage, **changes):
    settings = replace(experiment.settings, changes)
    memory = DeviceMemory(free / MEMORY_SHARE, per_client=1000)
    with mock.patch.object(driver, 'device_memory', return_value=memory):
      return driver.num_side_by_side(
        experiment._replace(settings=settings), stage, call
      )

  assert number(4.5 * of_three) == 4
  assert number(0.5 * of_three) == 1  # some clients at a time, then
  assert number(4.5 * (of_three - 2000), clients_per_chunk=1) == 4
  features = stage._replace(prepare_data=lambda server, data: data)
  assert number(4.5 * of_three, features) == 1
  with mock.patch.object(driver, 'device_memory', return_value=None):
    assert driver.num_side_by_side(experiment, stage, call) == 1


def test_one_seed_at_a_time_where_nothing_is_compiled():
  experiment = make_experiment(debug=True)
  rest = SeedRun._fields[1:]
  seed_run = SeedRun(experiment, **dict.fromkeys(rest))
  (stage,) = experiment.stages
  assert choose.choose_driver([seed_run] * 2, stage).max_calls == 1


# ---- runs that are continued


def test_a_run_that_is_ahead_waits_for_the_other(group, tmp_path, capsys):
  experiments, folder, _ = group
  shutil.copytree(folder / 'killed', tmp_path, dirs_exist_ok=True)
  assert server_of(experiments[0], tmp_path / '0')[0] == 4
  assert not (tmp_path / '1' / 'checkpoints').exists()
  train_seeds(experiments, directories(tmp_path))
  output = capsys.readouterr().out
  assert 'after round 0 of 7; 1 of 2 seeds are ahead and wait.' in output
  for name in '01':
    assert_same_run(tmp_path / name, folder / 'whole' / name)
    assert_same_bits(
      scores_of(tmp_path / name), scores_of(folder / 'whole' / name)
    )


def test_a_finished_seed_is_left_out(group, tmp_path, capsys):
  """And a run that was started with it continues alone."""
  experiments, folder, _ = group
  shutil.copytree(folder / 'killed' / '0', tmp_path / '0')
  shutil.copytree(folder / 'whole' / '1', tmp_path / '1')
  before = snapshot(tmp_path / '1')
  results = train_seeds(experiments, directories(tmp_path))
  output = capsys.readouterr().out
  assert f'{tmp_path / "1"} is finished: nothing to do.' in output
  assert f'Continuing after round 4 of {ROUNDS}.' in output
  assert snapshot(tmp_path / '1') == before
  assert results[1] == run_dir.load_result(folder / 'whole' / '1')
  assert_same_run(tmp_path / '0', folder / 'whole' / '0')
  assert train_seeds(experiments, directories(tmp_path)) == results
  output = capsys.readouterr().out
  assert output.count('are finished: nothing to do.') == output.count('\n') == 1


def test_what_all_seeds_share_is_logged_once(group):
  _, _, output = group
  lines = output.splitlines()
  assert lines[0] == 'A note.' and lines.count('A note.') == 1
  assert sum(line.startswith(f'round {ROUNDS}/') for line in lines) == 1
  assert len(lines) < ROUNDS + 2


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


def test_a_seed_that_diverges_is_named(tmp_path):
  """What was saved of both is good."""
  experiments = [
    spoil(one, seed=1, broken=4)
    for one in make_seeds(checkpoint_every=2, eval_every=ROUNDS)
  ]
  with pytest.raises(BadInput) as caught:
    train_seeds(experiments, directories(tmp_path))
  message = str(caught.value)
  rounds = 'NaN or infinity in rounds 3 to 4 of fedbabu'
  assert f'{rounds}: in the server state' in message
  assert f'; seed 1, {tmp_path / "1"}' in message
  for experiment, workdir in zip(
    experiments, directories(tmp_path), strict=True
  ):
    step, server = server_of(experiment, workdir)
    assert step == 2
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))


# ---- what is refused


def test_seeds_of_two_experiments(tmp_path):
  experiments = [make_experiment(), make_experiment(seed=1, batch_size=9)]
  with pytest.raises(BadInput) as caught:
    train_seeds(experiments, directories(tmp_path))
  assert str(caught.value) == (
    "experiments: got {'batch_size': [8, 9]}, expected the same settings in "
    'all of them but for seed and init_from, and numbers that change no shape. '
    'Likely cause: several experiments: train those one after the other.'
  )
  assert not any(tmp_path.iterdir())


def test_two_seeds_in_one_directory(tmp_path):
  with pytest.raises(BadInput) as caught:
    train_seeds(make_seeds(), [tmp_path / 'a', tmp_path / 'a'])
  assert str(caught.value) == (
    f'workdirs: got {[str(tmp_path / "a")] * 2}, expected 2 directories, '
    'one for each seed. Likely cause: a name without the seed in it.'
  )
  assert not any(tmp_path.iterdir())

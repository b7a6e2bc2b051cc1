"""Attacks on private runs: the noise is nowhere, and never the same twice.

Each attack succeeds where the noise follows from `dp.noise_seed`: so it would
find noise that follows from anything else that is known.
"""

import shutil
import stat
from unittest import mock

import jax
import numpy as np
import pytest
from helpers import assert_same_bits, refused
from jax.flatten_util import ravel_pytree
from small_runs import (
  make_experiment,
  make_settings,
  models_of,
  record,
  restored,
  spoil_upload,
)

from fedjax_pfl.analysis.export import export
from fedjax_pfl.around import accountant
from fedjax_pfl.around.accountant import Rounds
from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.core import chacha
from fedjax_pfl.core.user_code import UserCode
from fedjax_pfl.runs import model_file, run_dir, secret
from fedjax_pfl.training import privacy_budget
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program

pytestmark = pytest.mark.usefixtures('quick_compiler', 'accounting')
ONE_ROUND = {
  'algorithm': 'fedavg',
  'client_fraction': 1.0,
  'rounds': 1,
  'views': ('initial',),
  'eval_views': (),
  'save_clients': (),
}
DP = {'clip': 0.5, 'noise_multiplier': 1.0, 'delta': 1e-3}
QUIET = 0.01  # noise multiplier
SEEDS = [None, 7]  # of noise: secret, known


def private(noise=1.0, noise_seed=None, **changes):
  dp = DP | {'noise_multiplier': noise, 'noise_seed': noise_seed}
  return make_experiment(dp=dp, **ONE_ROUND, **changes)


def model_of(experiment, folder, program):
  """Train; return the numbers of the global model."""
  train(experiment, str(folder), program)
  model = models_of(folder)['global.npz']
  return np.concatenate([np.ravel(leaf) for leaf in model.values()])


@pytest.fixture(scope='module')
def quiet(quick_compiler):
  experiment = private(QUIET)
  return experiment, Program(experiment)


@pytest.mark.parametrize('seed', SEEDS)
def test_noise_does_not_cancel(tmp_path, quiet, seed):
  """Of two budgets of one seed; of a run without the data of one client; of a
  run that begins from the model of another.
  """
  is_found = seed is not None
  loud, louder = private(1.0, seed), private(3.0, seed)
  program = Program(loud)

  def noise_of(name, edit=lambda experiment: experiment):
    one, other = edit(loud), edit(quiet[0])
    noisy = model_of(one, tmp_path / name, program)
    return noisy, noisy - model_of(other, tmp_path / f'{name}_q', quiet[1])

  first, noise = noise_of('first')
  other = model_of(louder, tmp_path / 'louder', Program(louder))
  solved = (3 * first - other) / 2  # without noise, if it were the same
  error = np.linalg.norm(solved - first + noise) / np.linalg.norm(noise)
  assert (error < 0.1) == is_found
  for name, edit in (('less', without_client), ('next', after(first))):
    more = noise_of(name, edit)[1]
    assert (np.corrcoef(noise, more)[0, 1] > 0.9) == is_found


def without_client(experiment):
  count = experiment.train.count.at[0].set(0)
  return experiment.with_data(train=experiment.train._replace(count=count))


def after(model):
  """Return the edit of an experiment that begins with this model."""

  def edit(experiment):
    (stage,) = experiment.stages
    begin = stage.algorithm.init_server

    def init_server(rng):
      server = begin(rng)
      _, unravel = ravel_pytree(server.params)
      return server._replace(params=unravel(model))

    algorithm = stage.algorithm._replace(init_server=init_server)
    return experiment._replace(stages=(stage._replace(algorithm=algorithm),))

  return edit


SECRET = bytes(range(100, 100 + chacha.SIZE))


@pytest.fixture(scope='module')
def banded(tmp_path_factory, quick_compiler):
  """Return a run whose server keeps noise; its secret is SECRET."""
  experiment = make_experiment(
    dp=DP | {'bands': 2}, sampling='cyclic', algorithm='fedavg', save_clients=()
  )
  with mock.patch.object(chacha, 'new_secret', lambda: SECRET):
    return record(experiment, tmp_path_factory.mktemp('banded'), [4])


@pytest.fixture
def killed(banded, tmp_path):
  return shutil.copytree(banded.folder / 'killed4', tmp_path / 'killed')


def test_a_secret_is_kept_while_needed_and_in_no_other_file(banded, killed):
  """Nor has a file of the end any noise."""
  run, kept = banded, killed / secret.NAME
  assert stat.S_IMODE(kept.stat().st_mode) == 0o600
  assert kept.read_text() == SECRET.hex()
  assert any(leaf.any() for leaf in jax.tree.leaves(noise_in(run, killed)))

  train(run.experiment, str(killed), run.program)
  assert_same_bits(models_of(killed), models_of(run.path))
  for path in (killed, run.path):
    assert not (path / secret.NAME).exists()
    assert not any(leaf.any() for leaf in jax.tree.leaves(noise_in(run, path)))
    assert len([*(path / 'checkpoints').iterdir()]) == 1
    files = [file for file in path.rglob('*') if file.is_file()]
    assert {'.txt', '.json', '.npz'} <= {file.suffix for file in files}
    of_clients = path / run_dir.CLIENTS, *path.glob('checkpoints/*/*')
    assert {stat.S_IMODE(file.stat().st_mode) for file in of_clients} == {0o600}
    for file in files:
      content = file.read_bytes()
      assert SECRET not in content
      assert SECRET.hex().encode() not in content


def noise_in(run, path):
  return restored(run.experiment, path).server.privacy.noise


def test_a_lost_or_damaged_secret(banded, killed, capfd):
  """With bands other groups would take turns; else noise is just new."""
  kept = killed / secret.NAME
  for lose in (lambda: kept.write_text('00'), kept.unlink):
    lose()
    message = refused(train, banded.experiment, str(killed), banded.program)
    assert message.startswith('secret: got ')
  assert not kept.exists()
  run = run_dir.Run(killed, print, None)
  assert len(run.secret(has_turns=False)) == 2 * chacha.SIZE
  assert 'lost its secret' in ''.join(capfd.readouterr())


RELEASED = {
  *('model', 'model_settings', 'rule', 'hp', 'batch_statistics', 'input'),
  *('image_shape', 'image_mean', 'image_std', 'num_classes', 'class_names'),
  *('algorithm', 'round', 'client', 'privacy', 'version'),
}


def test_what_a_private_run_shows_and_releases(tmp_path):
  """Neither who came nor how right it is: the model, and what it spends."""
  changes = {**ONE_ROUND, 'rounds': 3, 'client_fraction': 0.5, 'eval_every': 1}
  changes |= {'sampling': 'poisson', 'model': 'convnet3', 'dropout_rate': 0.3}
  changes |= {'server_optimizer': 'sgd', 'eval_views': ('initial',)}
  changes['save_clients'] = (0,)  # the default, of which nothing is saved
  dp = make_settings()['dp'] | {'clip': 0.5, 'epsilon': 8.0, 'delta': 1e-3}
  said = []
  experiment = build_experiment(make_settings(dp=dp, **changes), said.append)
  assert not any('too large' in text for text in said)
  path = tmp_path / 'run'
  about = train(experiment, str(path))['privacy']
  assert 7.9 < about['epsilon'] <= 8 and about['delta'] == 1e-3
  plan = (Rounds(3, 5.0, 10, 'poisson'),)
  assert about['theorem'] == accountant.theorem(plan)
  want = accountant.epsilon_of(about['noise_multiplier'], 1e-3, plan)
  assert about['epsilon'] == want
  lines = run_dir.load_metrics(path)
  spent = [line['epsilon'] for line in lines]
  assert 0 == spent[0] < spent[1] < spent[-1] == about['epsilon']
  assert len({line['bytes_up'] for line in lines[1:]}) == 1
  assert not any('dropped' in line for line in lines)
  assert [file.name for file in (path / 'model').iterdir()] == ['global.npz']
  assert (path / run_dir.NOTE).is_file()

  output = tmp_path / 'model.npz'
  export(path, 'server', '', output, said.append, None, private=True)
  params, about = model_file.load_model(output)
  assert_same_bits(params, model_file.load_model(path / run_dir.MODEL)[0])
  assert {*about} == RELEASED
  message = refused(
    export, path, '0', '', tmp_path / 'b.npz', print, None, True
  )
  assert message.startswith('private: got ') and 'client 0' in message


def test_a_known_seed_is_called_not_private(tmp_path):
  dp = DP | {'noise_seed': 3, 'delta': 0.15}
  said = []
  with mock.patch('builtins.print', lambda *words: said.extend(words)):
    experiment = make_experiment(dp=dp, **ONE_ROUND)
  assert any('NOT PRIVATE' in text for text in said)
  assert any(
    'dp.delta=0.15 is too large for 10 clients' in text for text in said
  )
  result = train(experiment, str(tmp_path / 'run'))
  (line,) = run_dir.load_metrics(tmp_path / 'run')
  for shown in (result['privacy'], line):
    assert 'epsilon' not in shown and shown['epsilon_not_private'] > 0
  message = refused(release, tmp_path / 'run')
  assert message.endswith('its noise follows from dp.noise_seed.')
  without = lambda config: config['dp'].update(noise_seed=None)
  message = refused(release, tmp_path / 'run', without)
  assert message.startswith('dp.noise_seed: got None, expected 3, with which')


def release(path, edit=None):
  """Return what the header of a released model says of privacy."""
  output = path.with_suffix('.npz')
  output.unlink(missing_ok=True)
  export(path, 'server', '', output, print, edit, private=True)
  return model_file.load_model(output)[1]['privacy']


def begun(tmp_path, name, start='', **changes):
  """Return the path of a run of this start, and what it said."""
  said, dp = [], changes.pop('dp', DP)
  dp = make_settings()['dp'] | dp
  how = {**ONE_ROUND, 'model': 'convnet3', 'batch_size': 20, **changes}
  init_from = str(tmp_path / start) if start else ''
  settings = make_settings(dp=dp, init_from=init_from, **how)
  experiment = build_experiment(settings, said.append)
  train(experiment, str(tmp_path / name))
  return tmp_path / name, ' '.join(said)


def test_what_was_trained_without_noise_is_never_released(tmp_path):
  """Whatever follows, and however often; nor is a model that was put there."""
  public, _ = begun(tmp_path, 'public', dp={})
  for name, start, rounds in (('zero', 'public', 0), ('after', 'zero', 1)):
    path, said = begun(tmp_path, name, start, rounds=rounds)
    assert 'its start, ' in said and 'has no budget' in said
    about = run_dir.load_result(path)['privacy']
    assert 'epsilon' not in about and 'dp.clip is 0' in str(about['start'])
    assert 'its start has no budget (' in refused(release, path)
  assert 'together have spent epsilon_not_priv' in privacy_budget.spent_in(
    tmp_path
  )
  first, _ = begun(tmp_path, 'first')
  shutil.copy(public / run_dir.MODEL, first / run_dir.MODEL)
  path, _ = begun(tmp_path, 'swapped', 'first', rounds=0)
  assert 'model/ is not that of its result' in refused(release, path)


def test_a_start_counts(tmp_path):
  """And its own; at the delta of the run that is released."""
  first, said = begun(tmp_path, 'first')
  assert 'start' not in said and 'start' not in release(first)
  second, said = begun(tmp_path, 'second', 'first', dp=DP | {'delta': 2e-3})
  assert 'has spent epsilon' in said
  third, _ = begun(tmp_path, 'third', 'second', rounds=0)

  def epsilon(delta, rounds):
    return accountant.epsilon_of(1.0, delta, (Rounds(rounds, 10, 10),))

  for path, *rounds in ((first, 1e-3, 1), (second, 2e-3, 2), (third, 1e-3, 2)):
    want = pytest.approx(epsilon(*rounds))
    assert release(path)['epsilon'] == want
    assert run_dir.load_result(path)['privacy']['epsilon'] == want
  # Those of a start count once, beside the runs of the folder.
  said, total = privacy_budget.spent_in(tmp_path), epsilon(2e-3, 5)
  assert f'All 3 private runs in {tmp_path} together have spent' in said
  assert f'epsilon {total:.3g} at most at delta 0.002' in said

  less = {'clip': 0.5, 'epsilon': epsilon(1e-3, 1), 'delta': 1e-3}
  message = refused(lambda: begun(tmp_path, 'less', 'second', dp=less))
  assert message.startswith('dp.epsilon: got') and 'start' in message
  (third / secret.NAME).write_text('00')
  assert 'secret is still there' in refused(release, third)
  path, _ = begun(tmp_path, 'fourth', 'third', rounds=0)
  assert 'secret is still there' in refused(release, path)


@pytest.mark.parametrize(
  ('changes', 'plan'),
  [
    ({'algorithm': 'fedper'}, (3, 10, True)),
    ({'algorithm': 'ditto'}, (3, 10, False)),
    ({'unseen_clients': 4, 'client_fraction': 0.5}, (3, 6, False)),
  ],
)
def test_a_plan_has_who_takes_part_and_whether_they_keep_a_state(changes, plan):
  """In fixed cohorts what others send depends on who was drawn before.

  The number of unseen clients would make a cohort a smaller share than it is.
  """
  experiment = make_experiment(dp=DP, save_clients=(), **changes)
  (rounds,) = experiment.privacy.plan
  assert (rounds.size, rounds.num_clients, rounds.has_state) == plan


def test_code_that_reads_all_examples_gets_a_sentence():
  def reads(stage):
    def local_update(down, client, data, rng):
      client, up, metrics = stage.algorithm.local_update(
        down, client, data, rng
      )
      more = data.x.mean()
      return client, jax.tree.map(lambda leaf: leaf + more, up), metrics

    return replaced(stage, local_update=local_update)

  around = UserCode('leak.py:reads', reads)
  message = refused(lambda: make_experiment(dp=DP, **ONE_ROUND, around=around))
  assert message.startswith('dp.clip: got ') and 'AttributeError' in message
  assert 'x and y are the examples of the client' in message


def test_a_change_that_is_no_number_counts_as_zero(tmp_path):
  """The run goes on, and says how many there were, not whose."""
  experiment = make_experiment(dp=DP, **ONE_ROUND)
  spoilt = spoil_upload(experiment, 3, [0])
  train(spoilt, str(tmp_path / 'run'))
  (line,) = run_dir.load_metrics(tmp_path / 'run')
  assert line['excluded'] == 1 and 'excluded_clients' not in line
  for leaf in jax.tree.leaves(models_of(tmp_path / 'run')):
    assert np.isfinite(leaf).all()

"""Many settings: each is trained once, whatever happens on the way."""

import fcntl

import compiler
import pytest
import small_cells
import small_runs
from helpers import refused

from fedjax_pfl.around import accountant
from fedjax_pfl.around.accountant import Rounds
from fedjax_pfl.compare import train as module
from fedjax_pfl.compare.plan import Planned
from fedjax_pfl.compare.train import in_folder, train
from fedjax_pfl.runs import lock, run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys
from fedjax_pfl.training.divergence import sentence_of

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(autouse=True)
def small(monkeypatch):
  """Train a model that compiles quickly."""
  monkeypatch.setattr(module.build, 'build_experiment', small_cells.build)


def make(**changes):
  own = {'rounds': 2, 'views': ('initial',), 'eval_views': (), **changes}
  return parse_config(small_runs.make_settings(**own))


def ignore(text):
  del text


def train_all(settings, folder, log):
  """Train settings without labels; return their directories."""
  plan = [Planned(one, {}) for one in settings]
  return train(plan, in_folder(folder), log)


def test_every_setting_is_trained_once(tmp_path):
  # Fields that change no number find the same run.
  same = make(save_clients=())
  settings = [make(learning_rate=0.02), make(seed=1), same, make(rounds=1)]
  paths = train_all(settings, tmp_path, ignore)
  assert paths[0] == paths[2]  # 0.02 is that of small_runs
  assert len({*paths}) == len([*tmp_path.iterdir()]) == 3
  assert all(map(run_dir.is_finished, paths))
  assert run_dir.load_result(paths[3])['rounds'] == 1
  before = small_runs.snapshot(tmp_path)
  again = [make(save_clients=()), make(seed=1)]
  assert train_all(again, tmp_path, ignore) == paths[:2]
  assert small_runs.snapshot(tmp_path) == before
  # One that was stopped goes on: nothing but its result is missing.
  whole = small_runs.numbers_of(paths[3])
  (paths[3] / run_dir.RESULT).unlink()
  moved = module._as_started(make(rounds=1, data_dir='/new'), paths[3])
  assert moved.data.data_dir == '/new'
  assert train_all(settings[3:], tmp_path, ignore) == paths[3:]
  assert small_runs.numbers_of(paths[3]) == whole


def test_a_run_of_another_process_is_left_and_looked_at_again(tmp_path):
  settings, logged = [make(), make(seed=1)], []
  data_of = keys.make_data_of(ignore)
  path_of = in_folder(tmp_path)
  theirs, ours = (path_of(one, data_of(one)) for one in settings)
  theirs.mkdir()
  other = open(theirs / lock.NAME, 'w')  # noqa: SIM115
  fcntl.flock(other, fcntl.LOCK_EX)  # as another process holds it
  message = refused(train_all, settings, tmp_path, ignore)
  assert theirs.name in message and ours.name not in message
  assert run_dir.is_finished(ours) and not run_dir.is_finished(theirs)
  assert [path.name for path in theirs.iterdir()] == [lock.NAME]

  def log(text):
    logged.append(text)
    if 'left to other processes' in text:
      other.close()  # it has ended

  assert train_all(settings, tmp_path, log) == [theirs, ours]
  assert run_dir.is_finished(theirs) and other.closed


def test_seeds_share_the_array_of_their_images(tmp_path, monkeypatch):
  found = []
  monkeypatch.setattr(
    module.many_runs, 'train_many', lambda runs, *_: found.extend(runs)
  )
  train_all([make(), make(seed=1)], tmp_path, ignore)
  assert found[0].train.x is found[1].train.x


def test_a_grid_with_two_seeds_compiles_a_round_once(tmp_path):
  settings = [
    make(
      algorithm='fedprox', rounds=1, learning_rate=rate, hp={'mu': mu}, seed=s
    )
    for rate in (0.1, 0.03)
    for mu in (0.01, 0.5)
    for s in (0, 1)
  ]
  with compiler.counting() as names:
    paths = train_all(settings, tmp_path, ignore)
  assert names.count('jit(rounds)') == names.count('jit(evaluate)') == 1
  assert all(map(run_dir.is_finished, paths)) and len({*paths}) == 8
  losses = {run_dir.load_metrics(path)[-1]['loss'] for path in paths}
  assert len(losses) == 8


def test_a_setting_that_diverges_ends_alone(tmp_path):
  logged, settings = [], [make(learning_rate=1e38), make()]
  hot, cool = train_all(settings, tmp_path, logged.append)
  assert not sentence_of(cool)
  assert f'; seed 0, {hot}' in sentence_of(hot)
  assert run_dir.is_finished(cool) and not run_dir.is_finished(hot)
  before = small_runs.snapshot(tmp_path)
  assert train_all(settings, tmp_path, logged.append) == [hot, cool]
  assert small_runs.snapshot(tmp_path) == before
  assert 'diverged before and is not trained again' in ''.join(logged)


def test_private_runs_are_followed_by_what_all_have_spent(tmp_path):
  """Those that were trained before, too."""
  pytest.importorskip('dp_accounting')
  said = []
  own = {'client_fraction': 1.0, 'save_clients': ()}
  own['dp'] = {'clip': 0.5, 'noise_multiplier': 1.0, 'delta': 1e-3}
  for seed in range(2):
    settings = [make(**own, seed=seed), make(seed=seed)]
    train_all(settings, tmp_path, said.append)
  last = [text for text in said if 'together have spent' in text]
  spent = (
    accountant.epsilon_of(1.0, 1e-3, (Rounds(rounds, 10, 10),))
    for rounds in (2, 4)
  )
  for text, number, epsilon in zip(last, (1, 2), spent, strict=True):
    assert f'All {number} private runs' in text and f'{epsilon:.3g} at' in text

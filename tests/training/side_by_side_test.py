"""Runs that one compiled call trains side by side, as `train` leaves them."""

import fcntl
import shutil
import signal

import helpers
import jax
import pytest
from many_runs_test import directories, make, vary
from small_runs import models_of, unfinish
from stopped_runs_test import signalled

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.federated import chunking, rounds
from fedjax_pfl.federated.step_work import Work
from fedjax_pfl.runs import lock, run_dir
from fedjax_pfl.runs.checkpoint import steps
from fedjax_pfl.training import divergence, many_runs, side_by_side, signals

pytestmark = pytest.mark.usefixtures('quick_compiler')
# Clients have unequal numbers of steps; of four runs one is in the last turn.
CHANGES = {'algorithm': 'fedprox', 'rounds': 3, 'checkpoint_every': 1}
CHANGES |= {'partition': 'dirichlet', 'dirichlet_beta': 0.5, 'devices': 1}
CHANGES |= {'eval_every': 2, 'log_every': 1, 'eval_views': ('initial',)}


def several(**changes):
  seeds = [make(**CHANGES, **changes, seed=seed) for seed in (0, 1)]
  return [seeds[0], seeds[1], vary(seeds[1], hp__mu=0.5, learning_rate=0.1)]


def assert_close_runs(got, want):
  """Compare what both left: names, numbers within rounding, models."""
  names = [
    sorted(
      str(path.relative_to(run))
      for path in run.rglob('*')
      if 'tfevents' not in path.name
    )
    for run in (got, want)
  ]
  assert names[0] == names[1]
  for one, other in zip(*map(run_dir.load_metrics, (got, want)), strict=True):
    assert one.keys() == other.keys()
    for name in one.keys() - {'time', 'images_per_second', 'stage'}:
      assert one[name] == pytest.approx(other[name], rel=1e-11), name
  helpers.assert_close(models_of(got), models_of(want))
  results = [run_dir.load_result(run) for run in (got, want)]
  assert all(own.pop('seconds') > 0 for own in results)
  for view, numbers in results[0]['views'].items():
    assert numbers['mean'] == results[1]['views'][view]['mean']


@pytest.fixture(scope='module')
def whole(tmp_path_factory, quick_compiler):
  """Return three runs, their directories one by one, and what is logged."""
  folder = tmp_path_factory.mktemp('whole')
  with jax.enable_x64(True):
    runs = several()
    many_runs.train_many(runs, directories(folder, 3))
    yield runs, directories(folder, 3)


def test_runs_leave_what_they_leave_one_by_one(whole, tmp_path):
  (runs, one_by_one), logged = whole, []
  paths = directories(tmp_path, 3)
  results = many_runs.train_many(runs, paths, logged.append, side_by_side=3)
  assert logged[-1] == '3 runs at a time, side by side.'
  for got, want, result in zip(paths, one_by_one, results, strict=True):
    assert_close_runs(got, want)
    assert result == run_dir.load_result(got)


def test_killed_runs_continue_from_different_rounds(whole, tmp_path):
  """A third, which did not begin, takes the place of the first to end."""
  runs, one_by_one = whole
  paths = directories(tmp_path, 3)
  shutil.copytree(one_by_one[0], paths[0])
  unfinish(paths[0])
  many_runs.train_many(runs, paths, side_by_side=2)
  for got, want in zip(paths, one_by_one, strict=True):
    assert_close_runs(got, want)


def test_one_that_diverges_and_one_that_is_held_are_alone(whole, tmp_path):
  (runs, one_by_one), held = whole, []
  paths = directories(tmp_path, 3)
  runs = [runs[0], vary(runs[0], learning_rate=1e38, hp__mu=1e38), runs[2]]
  paths[2].mkdir()
  with open(paths[2] / lock.NAME, 'w') as other:
    fcntl.flock(other, fcntl.LOCK_EX)  # as another process holds it
    found = many_runs.train_many(
      runs, paths, held_fn=held.append, side_by_side=3
    )
  assert_close_runs(paths[0], one_by_one[0])
  assert found[1:] == [None, None] and held == [2]
  assert 'learning_rate' in divergence.sentence_of(paths[1])
  assert [path.name for path in paths[2].iterdir()] == [lock.NAME]


def test_a_signal_saves_every_open_run(whole, tmp_path):
  runs, one_by_one = whole
  paths = directories(tmp_path, 3)
  stopped = pytest.raises(signals.Stopped)
  with signalled(signal.SIGTERM, after=2), stopped as caught:
    many_runs.train_many(runs, paths, side_by_side=2)
  assert caught.value.status == 128 + signal.SIGTERM
  done = [steps(path / 'checkpoints') for path in paths[:2]]
  assert done == [[1, 2], [1]] and not paths[2].exists()
  assert not any((path / lock.NAME).exists() for path in paths)
  many_runs.train_many(runs, paths, side_by_side=2)
  assert_close_runs(paths[1], one_by_one[1])


def test_half_as_many_where_memory_does_not_hold_them(
  whole, tmp_path, monkeypatch, capsys
):
  (runs, one_by_one), rounds_fn, traced = whole, rounds._rounds_fn, []

  def fails_first(*args):
    traced.append(args)
    if len(traced) == 1:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')
    return rounds_fn(*args)

  monkeypatch.setattr(rounds, '_rounds_fn', fails_first)
  paths = directories(tmp_path)
  many_runs.train_many(runs[:2], paths, side_by_side=2)
  assert '2 runs at a time run out of memory' in capsys.readouterr().out
  assert_close_runs(paths[1], one_by_one[1])


def test_as_many_as_fill_a_step_and_the_memory(whole, monkeypatch):
  (run, *_), _ = whole
  assert side_by_side.width_of(run, 8, 'auto') == 1  # on a CPU
  assert side_by_side.width_of(run, 10, 8) == 5  # two full turns
  debugged = make(**{**CHANGES, 'debug': True})
  assert side_by_side.width_of(debugged, 8, 4) == 1
  with compiling_for('gpu', 2**40):
    assert side_by_side.width_of(run, 8, 'auto') == 8
    assert side_by_side.width_of(run, 40, 'auto') == 14  # three turns of 16
    work = Work(flops=2e9, activations=1)
    monkeypatch.setattr(chunking, 'client_work', lambda *args: work)
    # Five of two clients of 2 GFLOP: in two turns.
    assert side_by_side.width_of(run, 8, 'auto') == 4
  with compiling_for('gpu', 2**24):
    work = Work(flops=1, activations=2**21)
    monkeypatch.setattr(chunking, 'client_work', lambda *args: work)
    assert 1 <= side_by_side.width_of(run, 8, 'auto') < 4


def test_a_fraction_of_a_run_is_refused(whole, tmp_path):
  with pytest.raises(BadInput, match='side_by_side: got 0'):
    many_runs.train_many(whole[0], directories(tmp_path, 3), side_by_side=0.5)
  assert not [*tmp_path.iterdir()]

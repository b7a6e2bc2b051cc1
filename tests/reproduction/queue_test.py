"""A queue is worked through: once, in its order, also when it is stopped."""

import os
import shutil
import signal
import time
from unittest import mock

import pytest
import small_queue
from faults import locks, moments
from helpers import long

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction import execute, queue
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.training import loop

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture(autouse=True)
def trained(monkeypatch):
  """Return a list that grows by the methods that are trained."""
  names, train = [], loop.train

  def counted(experiment, workdir, program):
    names.append(experiment.settings.algorithm)
    return train(experiment, workdir, program)

  monkeypatch.setattr(execute, 'build_experiment', small_queue.build)
  monkeypatch.setattr(loop, 'train', counted)
  return names


@pytest.fixture(scope='module')
def done(tmp_path_factory, quick_compiler):
  """Return a folder with a finished queue, its rows, and states on the way."""
  folder = tmp_path_factory.mktemp('queue')
  (folder / 'queue.toml').write_text(small_queue.QUEUE)
  results, states = folder / 'results', []
  results.mkdir()

  def look(*change):
    states.append(moments.read(results))

  with pytest.MonkeyPatch.context() as patched, moments.watching(results, look):
    patched.setattr(execute, 'build_experiment', small_queue.build)
    small_queue.run(folder)
  return folder, small_queue.rows_of(results), states


@pytest.fixture
def folder(done, tmp_path):
  """Return a copy of the finished queue, where the first seeds' run is."""
  shutil.copytree(done[0], tmp_path, dirs_exist_ok=True)
  return tmp_path


def run_of(folder, pattern):
  (path,) = (folder / 'results' / 'runs').glob(pattern)
  return path


def test_a_finished_queue_runs_nothing(done, folder, trained, capsys):
  """Nor does a clone: of what git keeps, models and checkpoints are absent."""
  for name in ('model', 'checkpoints', 'tb'):
    for path in (folder / 'results' / 'runs').glob(f'*/{name}'):
      shutil.rmtree(path)
  small_queue.run(folder)
  assert trained == []
  assert small_queue.rows_of(folder / 'results') == done[1]
  assert '3 of 4 done, 1 diverged; 0 s left' in capsys.readouterr().out


def test_what_a_clone_lacks_is_a_sentence(done, folder, capsys):
  """The step is left out with it; the others go on, and rows stay."""
  first = run_of(folder, 'fedbabu*seed0*')
  shutil.rmtree(first / 'model')
  shutil.rmtree(run_of(folder, 'lg_fedavg*'))  # it begins with that model
  shutil.rmtree(run_of(folder, 'fedbabu*seed1*'))
  small_queue.run(folder)
  output = capsys.readouterr().out
  assert ' is left out: ' in output and str(first) in output
  assert '2 of 4 done, 1 diverged; ' in output
  rows = small_queue.rows_of(folder / 'results')['summary.csv']
  assert len(rows) == len(done[1]['summary.csv'])


@pytest.mark.parametrize('place', [0.5, long(0.25), long(0.75)])
def test_a_queue_that_is_killed_ends_in_the_same_rows(done, place):
  """At a moment at which its files change."""
  folder, want, states = done
  assert len(states) > 100
  results, whole = folder / 'results', folder / 'whole'
  results.rename(whole)
  try:
    moments.write(states[int(place * len(states))], results)
    small_queue.run(folder)
    assert small_queue.rows_of(results) == want
    assert not list(results.glob('*/.*.tmp'))
  finally:
    shutil.rmtree(results, ignore_errors=True)
    whole.rename(results)


def test_the_time_is_up(done, folder, monkeypatch, capsys):
  """The training saves after its round, and the command ends as if done."""
  shutil.rmtree(run_of(folder, 'fedbabu*seed1*'))
  save, saved, timers = run_dir.Run.save_checkpoint, [], []

  def is_over(self, step, tree, keep):
    if not saved:
      ((seconds, stop),) = timers
      assert seconds == 150
      stop()
    saved.append(step)
    return save(self, step, tree, keep)

  def timer(*given):
    timers.append(given)
    return mock.Mock()

  with monkeypatch.context() as patched:
    patched.setattr(run_dir.Run, 'save_checkpoint', is_over)
    patched.setattr(queue.threading, 'Timer', timer)
    small_queue.run(folder, minutes=2.5)
  output = capsys.readouterr().out
  assert 'Saved after round 1' in output
  assert 'The 2.5 minutes are over;' in output
  assert '1 diverged' in output and 'round 1/3' in output
  begun = run_of(folder, 'fedbabu*seed1*')
  assert checkpoint.steps(begun / 'checkpoints') == [1]
  small_queue.run(folder)
  assert small_queue.rows_of(folder / 'results') == done[1]


def test_a_second_process_names_the_first_and_runs_nothing(folder):
  before = moments.read(folder / 'results')
  with locks.holders(folder / 'results', 1) as (owner,):
    locks.proceed(owner)
    owner.stdout.readline()
    with pytest.raises(BadInput) as caught:
      small_queue.run(folder)
    words = f'process {owner.pid} on {os.uname().nodename} since 20'
    assert words in str(caught.value)
    assert 'is writing' in str(caught.value)
    locks.proceed(owner)
    owner.wait()
  assert moments.read(folder / 'results') == before


def test_damage_is_a_sentence(folder, trained):
  """Nothing is run, and no file is changed."""
  shutil.rmtree(run_of(folder, 'lg_fedavg*'))  # something is to be run
  path = run_of(folder, 'fedbabu*seed0*') / 'clients.npz'
  path.write_text('')
  before = moments.read(folder / 'results')
  with pytest.raises(BadInput) as caught:
    small_queue.run(folder)
  assert 'which is missing or not as the run' in str(caught.value)
  assert str(folder / 'results') in str(caught.value)
  assert trained == []
  assert moments.read(folder / 'results') == before


def test_a_dry_run_shows_the_queue(folder, tmp_path, capsys, trained):
  small_queue.show(folder, tmp_path / 'new')
  output = capsys.readouterr().out
  assert not (tmp_path / 'new').exists()
  assert 'a  the first\nb  the second\n' in output
  assert '0 of 4 done; 6 min left by the estimates.' in output
  step = '(a) fedbabu/98 algorithm=fedavg, seed 0, about 60 s'
  assert f'Next: {step}' in output
  lines = [line.split() for line in output.splitlines() if 'fedbabu/9' in line]
  assert lines[0] == ['a', 'fedbabu/98', 'algorithm=fedavg', '60', 's', '.']
  small_queue.show(folder, folder / 'results')
  output = capsys.readouterr().out
  assert 'diverged' in output and 'Next' not in output
  assert trained == []


def test_a_timer_ends_what_is_no_training(capsys):
  def stop(number, frame):
    raise KeyboardInterrupt

  before = signal.signal(signal.SIGTERM, stop)  # as commands do
  try:
    with queue.deadline(0.05 / 60):
      time.sleep(10)
  finally:
    signal.signal(signal.SIGTERM, before)
  assert 'minutes are over' in capsys.readouterr().out

"""Every seed of an experiment is a run of its own at the tracker."""

import fake_trackers
import pytest
import small_runs

from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import RESUMABLE, changing
from fedjax_pfl.settings.field import EVALUATION, TRAINING
from fedjax_pfl.training.loop import train_many

pytestmark = pytest.mark.usefixtures('quick_compiler')


def make_experiments():
  changes = {'rounds': 2, 'log_every': 1, 'eval_every': 2, 'tracker': 'wandb'}
  changes |= {'views': ('initial',), 'checkpoint_every': 2}
  return [small_runs.make_experiment(seed=s, **changes) for s in (0, 1)]


def test_seeds_are_runs_of_their_own_at_the_tracker(tmp_path):
  paths = [tmp_path / 'seed0', tmp_path / 'seed1']
  with fake_trackers.installed(tmp_path) as fakes:
    train_many(make_experiments(), paths)
    calls = fakes['wandb'].CALLS
    begun = [call for call in calls if call[0] == 'init']
    assert [options['name'] for _, _, options in begun] == ['seed0', 'seed1']
    assert [options['config']['seed'] for _, _, options in begun] == [0, 1]
    ended = [call for call in calls if call[0] == 'finish']
    assert [call[2] for call in ended] == [0, 0]
    for (_, own_id, _), path in zip(ended, paths, strict=True):
      own = [call for call in calls if call[:2] == ('log', own_id)]
      lines = run_dir.load_metrics(path)
      assert [call[2] for call in own] == [1, 2]
      assert own[1][3]['loss'] == lines[1]['loss']
      assert own[1][3]['initial/accuracy'] == lines[1]['initial/accuracy']
    num_calls = len(calls)
    train_many(make_experiments(), paths)  # finished: nothing to do
    assert len(calls) == num_calls


def test_a_tracker_is_part_of_no_key_and_may_change():
  assert 'tracker' in RESUMABLE
  assert 'tracker' not in changing(TRAINING) + changing(EVALUATION)

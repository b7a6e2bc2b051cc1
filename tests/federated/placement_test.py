"""Runs with clients on the host have the results of those on the device."""

import shutil

import jax
import numpy as np
import pytest
from helpers import assert_close
from small_runs import assert_same_run, make_experiment, restored

from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.training.loop import train, train_many

pytestmark = [pytest.mark.usefixtures('quick_compiler'), pytest.mark.long]
# Clients keep a part of the model; some are without examples.
RAGGED = {
  'algorithm': 'lg_fedavg',
  'partition': 'dirichlet',
  'dirichlet_beta': 0.1,
  'views': ('initial',),
  'eval_views': (),
  'log_every': 1,  # one program for all calls
}


def on_host(**changes):
  return make_experiment(**RAGGED, clients_placement='host', **changes)


@pytest.fixture(scope='module')
def runs(tmp_path_factory, quick_compiler):
  """Return the directories of a run on the device and of one on the host."""
  folder = tmp_path_factory.mktemp('placements')
  train(make_experiment(**RAGGED), folder / 'device')
  train(on_host(), folder / 'host')
  return folder / 'device', folder / 'host'


def test_a_run_on_the_host_writes_what_one_on_the_device_writes(runs):
  device, host = runs
  experiment = on_host()
  assert isinstance(experiment.train.index, np.ndarray)
  assert_same_run(host, device)
  state, other = restored(experiment, host), restored(experiment, device)
  assert_close(state.clients, other.clients)
  assert_close(state.server, other.server)
  for leaf in jax.tree.leaves(state.clients):
    assert isinstance(leaf, np.ndarray) and leaf.flags.writeable


@pytest.mark.parametrize('then', ['device', 'host'])
def test_a_run_resumes_with_the_other_placement(runs, tmp_path, then):
  device, host = runs
  path = tmp_path / 'run'
  shutil.copytree(host if then == 'device' else device, path)
  newest = checkpoint.steps(path / 'checkpoints')[-1]
  shutil.rmtree(path / 'checkpoints' / str(newest))
  (path / run_dir.RESULT).unlink()
  train(make_experiment(**RAGGED, clients_placement=then), path)
  assert_same_run(path, device)


def test_seeds_on_the_host_run_one_after_the_other(runs, tmp_path):
  paths = [tmp_path / '0', tmp_path / '1']
  train_many([on_host(seed=seed) for seed in (0, 1)], paths)
  assert_same_run(paths[0], runs[0])

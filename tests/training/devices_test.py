"""Where clients lie and on which devices they are trained changes no result."""

import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import assert_close
from pages import ROOT
from small_runs import (
  assert_same_run,
  make_experiment,
  restored,
  spoil_upload,
  unfinish,
)

from fedjax_pfl.core.machine import num_cores
from fedjax_pfl.training.loop import train


@pytest.mark.long
@pytest.mark.skipif(num_cores() < 2, reason='needs two cores')
def test_a_run_continues_on_the_devices_on_which_it_began(tmp_path):
  """With the same bits on a machine with fewer cores."""
  command = [
    *(sys.executable, 'experiments/main.py'),
    *('--config=configs/digits.py:fedper,quick', '--config.rounds=1'),
    *('--config.eval_views=()', '--config.views=initial'),
  ]

  def run(name, *cores):
    done = subprocess.run(
      [*cores, *command, f'--workdir={tmp_path / name}'],
      **dict(cwd=ROOT, capture_output=True, text=True),
    )
    assert '2 devices (cpu)' in done.stdout, done.stderr
    return (tmp_path / name / 'clients.npz').read_bytes()

  begun = run('begun')  # two clients in a round
  (tmp_path / 'moved').mkdir()
  shutil.copy(tmp_path / 'begun' / 'config.json', tmp_path / 'moved')
  assert run('moved', 'taskset', '-c', '0') == begun


# ---- clients on the host

HOST = {
  # Clients keep a part of the model; some are without examples.
  'models of best rounds': {
    'algorithm': 'lg_fedavg',
    'partition': 'dirichlet',
    'dirichlet_beta': 0.1,
    'hp': {'protocol': 'released', 'learning_rate': 0.3},
    'eval_views': ('initial',),
  },
  # Later rounds write over the states of the chosen one.
  'validation': {
    'algorithm': 'ditto',
    'views': ('initial', 'personal'),
    'validation_fraction': 0.3,
    'select': 'validation',
  },
  # The rows of a client that is excluded are put back, its statistics, too.
  'exclusion and unseen clients': {
    'algorithm': 'fedper',
    'norm_statistics': 'running_local',
    'on_divergence': 'exclude',
    'client_fraction': 1.0,
    'unseen_clients': 3,
  },
}


def placed(case, place):
  """Return the experiment of a case with its clients on the device or host."""
  cheap = {'rounds': 4, 'views': ('initial',), 'eval_views': (), 'log_every': 1}
  cheap |= {'eval_every': 2, 'checkpoint_every': 2}
  changes = {**cheap, **HOST[case], 'clients_placement': place}
  experiment = make_experiment(**changes)
  excludes = 'on_divergence' in changes
  return spoil_upload(experiment, 3, [1]) if excludes else experiment


@pytest.mark.long
@pytest.mark.usefixtures('quick_compiler')
@pytest.mark.parametrize('case', HOST)
def test_a_run_on_the_host_writes_what_one_on_the_device_writes(case, tmp_path):
  """And continues what the other began."""
  paths = {place: tmp_path / place for place in ('device', 'host')}
  experiments = {place: placed(case, place) for place in paths}
  states = []
  for place, path in paths.items():
    train(experiments[place], path)
    states.append(restored(experiments[place], path)._replace(seconds=()))
  assert isinstance(experiments['host'].train.index, np.ndarray)
  assert_same_run(paths['host'], paths['device'])
  assert_close(*(jax.tree.map(np.asarray, state) for state in states))
  for leaf in jax.tree.leaves(states[1].clients):
    assert isinstance(leaf, np.ndarray) and leaf.flags.writeable
  for place, other in (('device', 'host'), ('host', 'device')):
    path = unfinish(shutil.copytree(paths[other], tmp_path / f'then_{place}'))
    train(experiments[place], path)
    assert_same_run(path, paths['device'])

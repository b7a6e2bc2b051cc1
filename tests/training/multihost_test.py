"""Several processes do one run; errors end in a sentence."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from compiler import QUICK
from helpers import assert_same_bits, refused
from pages import ROOT

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.machine import num_cores
from fedjax_pfl.runs import checkpoint
from fedjax_pfl.training import multihost

PROGRAM = ROOT / 'tests' / 'support' / 'on_hosts.py'
WAIT = 300  # seconds, on a machine that does much else


@pytest.mark.parametrize(
  ('place', 'expected'),
  [
    (('a:1', 2, None), 'a:1 with num_processes=2 and process_id=None'),
    ((None, 2, 0), 'None with num_processes=2 and process_id=0'),
    (('a:1', 2, 2), 'num_processes=2 and process_id=2'),
    (('a:70000', 2, 0), 'a:70000 with '),
  ],
)
def test_places_that_are_wrong_are_a_sentence(place, expected):
  message = refused(multihost.connect, *place)
  assert expected in message and '. Choices: ' in message


# ---- real processes


def free_port():
  with socket.socket() as one:
    one.bind(('localhost', 0))
    return one.getsockname()[1]


class Together:
  """Processes that do one run, with the output of each in a file."""

  def __init__(self, workdir, cache, *, number=2, changes=('{}', '{}')):
    self.workdir = workdir
    self.logs = [Path(f'{workdir}.{place}.log') for place in range(number)]
    address = f'localhost:{free_port()}'
    self.processes = [
      subprocess.Popen(
        [
          *(sys.executable, str(PROGRAM), str(workdir), address),
          *(str(number), str(place), changes[place]),
        ],
        env={
          **os.environ,
          'PYTHONPATH': f'{ROOT}:{ROOT / "tests" / "support"}',
          'XLA_FLAGS': QUICK,
          'JAX_COMPILATION_CACHE_DIR': str(cache),
          'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
        },
        stdout=open(log, 'w'),  # noqa: SIM115
        stderr=subprocess.STDOUT,
      )
      for place, log in enumerate(self.logs)
    ]

  def output(self, place=0):
    return self.logs[place].read_text()

  def finish(self):
    for place, process in enumerate(self.processes):
      assert process.wait(timeout=WAIT) == 0, self.output(place)
    return self

  def kill(self, place, step):
    """Kill one process once this checkpoint is there; wait for the others."""
    folder, process = self.workdir / 'checkpoints', self.processes[place]
    while step not in checkpoint.steps(folder):
      assert process.poll() is None, self.output(place)
      time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    for other in self.processes:
      other.wait(timeout=multihost.HEARTBEAT + 30)
    return self


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return tmp_path_factory.mktemp('compiled')


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory, cache):
  folder = tmp_path_factory.mktemp('unbroken')
  return Together(folder / 'two', cache).finish()


def arrays_of(workdir):
  """Return every array of scores and models that a run left."""
  found = dict(atomic_files.read_npz(workdir / 'clients.npz'))
  for path in sorted((workdir / 'model').glob('*.npz')):
    arrays = atomic_files.read_npz(path)
    found |= {f'{path.name}/{name}': arrays[name] for name in arrays}
  return found


def assert_alike(together, one):
  got, want = arrays_of(together.workdir), arrays_of(one.workdir)
  assert got.keys() == want.keys()
  for name, array in got.items():
    if array.dtype.kind == 'f':
      scale = max(np.abs(np.nan_to_num(want[name])).max(), 1e-3)
      np.testing.assert_allclose(array, want[name], atol=2e-6 * scale)
    else:
      np.testing.assert_array_equal(array, want[name])


@pytest.mark.long
def test_two_processes_do_what_one_does(unbroken, tmp_path, cache):
  one = Together(tmp_path / 'one', cache, number=1).finish()
  assert_alike(unbroken, one)
  # Each has a device for every core, as a process alone.
  devices = f'{2 * num_cores()} devices of 2 processes (cpu): each trains its'
  assert devices in unbroken.output(0)
  assert 'round 7/7' in unbroken.output(0)
  assert 'round' not in unbroken.output(1)  # only the first process prints


@pytest.mark.long
@pytest.mark.parametrize('algorithm', ['fedavg', 'ditto'])
def test_a_model_is_divided_over_two_processes(algorithm, tmp_path, cache):
  """With one process's numbers, and, when one is lost, its own bits."""
  number = 2 * num_cores()
  settings = {'algorithm': algorithm, 'width': number, 'eval_views': ()}
  if algorithm == 'ditto':  # the server of the best round is kept
    chosen = {'validation_fraction': 0.3, 'select': 'validation'}
    settings |= {'views': ('initial', 'personal'), **chosen}
  one = Together(
    *(tmp_path / 'one', cache), number=1, changes=[json.dumps(settings)]
  ).finish()
  settings['model_devices'] = number
  changes = [json.dumps(settings)] * 2
  two = Together(tmp_path / 'two', cache, changes=changes).finish()
  assert f'1 x {number} devices (cpu): a model is' in two.output(0)
  assert_alike(two, one)
  slow, path = [json.dumps({**settings, 'seconds': 1})] * 2, tmp_path / 'killed'
  Together(path, cache, changes=slow).kill(1, step=4)
  resumed = Together(path, cache, changes=changes).finish()
  assert 'Continuing after round 4 of 7' in resumed.output(0)
  assert_same_bits(arrays_of(path), arrays_of(two.workdir))


@pytest.mark.long
@pytest.mark.parametrize('place', [0, 1])
def test_a_lost_process_ends_the_others_and_the_run_continues(
  place, unbroken, tmp_path, cache
):
  workdir = tmp_path / 'killed'
  slow = ['{"seconds": 1}'] * 2
  killed = Together(workdir, cache, changes=slow).kill(place, step=4)
  other = 1 - place
  assert killed.processes[other].returncode, killed.output(other)
  if place:  # without process 0 jax aborts before Python can say anything
    assert 'process of the run was lost' in killed.output(other)
    assert 'Traceback' not in killed.output(other)
  resumed = Together(workdir, cache).finish()
  assert 'Continuing after round 4 of 7' in resumed.output(0)
  assert_same_bits(arrays_of(workdir), arrays_of(unbroken.workdir))


@pytest.mark.long
def test_processes_with_other_settings_are_refused(tmp_path, cache):
  """Each would wait for what the other does not compute."""
  changes = ['{}', '{"seed": 1}']
  apart = Together(tmp_path / 'run', cache, changes=changes)
  assert [one.wait(timeout=WAIT) for one in apart.processes] == [1, 1]
  for place in range(2):
    assert 'config: got ' in apart.output(place).splitlines()[-1]
    assert 'in process 1' in apart.output(place)
  assert not (tmp_path / 'run').exists()


def test_a_coordinator_that_is_not_there_is_a_sentence():
  place = f'localhost:{free_port()}', 2, 1
  message = refused(partial(multihost.connect, start=1), *place)
  assert 'process 0 to listen there' in message


def test_auto_without_a_batch_system_names_srun(monkeypatch):
  for name in [name for name in os.environ if name.startswith('SLURM_')]:
    monkeypatch.delenv(name)
  # It looks for one before there are devices.
  before = 'jax._src.distributed.xla_bridge.backends_are_initialized'
  monkeypatch.setattr(before, lambda: False)
  message = refused(multihost.connect, multihost.AUTO)
  assert message.startswith("coordinator: got 'auto', expected")
  assert 'srun fedjax-pfl train' in message


GLOO = 'UNKNOWN: Gloo AllGather failed: [pair.cc:538] Read error: peer'


@pytest.mark.parametrize(
  'error, is_lost',
  [
    (ValueError(GLOO), True),
    (jax.errors.JaxRuntimeError(GLOO), True),
    (ValueError('a connection of the layers'), False),
    (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory'), False),
  ],
)
def test_the_error_of_a_lost_process_is_one_sentence(
  monkeypatch, error, is_lost
):
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  written, statuses = [], []
  monkeypatch.setattr(os, 'write', lambda _, text: written.append(text))
  monkeypatch.setattr(os, '_exit', statuses.append)
  with multihost.ending():
    raise error
  (text,) = written
  assert statuses == [1]
  assert (b'Traceback' in text) != is_lost
  assert (b'another process of the run was lost' in text) == is_lost

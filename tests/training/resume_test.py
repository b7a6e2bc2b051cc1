"""A killed run continues, and ends with the bits of an unbroken run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiler import QUICK
from helpers import assert_same_bits

import fedjax_pfl as pfl
from configs import digits
from fedjax_pfl.core.machine import num_cores
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.runs import checkpoint, run_dir

ROOT = Path(run_dir.__file__).parents[2]
ROUNDS = 8
CONFIG = {
  'conv_impl': 'lax',  # compiles in half the time
  'num_clients': 10,
  'max_train_examples': 200,
  'client_fraction': 0.5,
  'rounds': ROUNDS,
  'local_epochs': 1,
  'views': ('initial', 'templates_euclidean'),
  'eval_every': 5,
  'checkpoint_every': 1,
  'save_clients': (0, 3),
}
CLOCKS = ('time', 'images_per_second')


def start(workdir, flags=QUICK, **changes):
  """Start the command as a user does; its output goes to a file."""
  fields = {**CONFIG, **changes}.items()
  words = {
    name: ','.join(map(str, own)) if isinstance(own, tuple) else own
    for name, own in fields
  }
  command = [
    *(sys.executable, 'experiments/main.py', f'--workdir={workdir}'),
    '--config=configs/digits.py:fedbabu',
    *[f'--config.{name}={word}' for name, word in words.items()],
  ]
  environ = {
    **os.environ,
    'XLA_FLAGS': flags,
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
  }
  with open(f'{workdir}.log', 'w') as log:
    return subprocess.Popen(
      command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
    )


def finish(process, workdir):
  """Wait for the end of a run; return its output."""
  status = process.wait(timeout=600)
  output = Path(f'{workdir}.log').read_text()
  assert status == 0, output
  return output


def kill_in_the_middle(process, workdir, lines=3):
  """Kill the process, without a warning, once some rounds are done."""
  path = workdir / run_dir.METRICS
  while not (path.exists() and path.read_bytes().count(b'\n') >= lines):
    assert process.poll() is None, Path(f'{workdir}.log').read_text()
    time.sleep(0.002)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  assert not (workdir / run_dir.RESULT).exists()
  return checkpoint.steps(workdir / 'checkpoints')[-1]


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """Return the experiment, the folder of an unbroken and of a killed run.

  Its copies in stopped/ and on_two/ are as the kill left it, after `newest`.
  """
  folder = tmp_path_factory.mktemp('runs')
  config = {**digits.get_config('fedbabu').to_dict(), **CONFIG}
  experiment = pfl.build_experiment(config)
  finish(start(folder / 'unbroken'), folder / 'unbroken')
  newest = kill_in_the_middle(start(folder / 'killed'), folder / 'killed')
  for name in ('stopped', 'on_two'):
    shutil.copytree(folder / 'killed', folder / name)
  assert 0 < newest < ROUNDS
  return experiment, folder, newest


def files_of(workdir):
  """Return {name: arrays} of what a run leaves for every client."""
  paths = [workdir / run_dir.CLIENTS, *sorted((workdir / 'model').iterdir())]
  found = {}
  for path in paths:
    with np.load(path, allow_pickle=False) as arrays:
      found[path.name] = {name: arrays[name] for name in arrays.files}
  assert [*found][1:] == [
    'global.npz',
    'templates_euclidean_client0.npz',
    'templates_euclidean_client3.npz',
  ]
  return found


def check_end(folder, name):
  """Check that a run ended like the unbroken one, with nothing left over."""
  one, other = folder / name, folder / 'unbroken'
  assert_same_bits(files_of(one), files_of(other))
  got, want = run_dir.load_result(one), run_dir.load_result(other)
  assert got['status'] == 'finished'
  assert got.pop('seconds') > 0 and want.pop('seconds') > 0
  assert got == want
  got, want = run_dir.load_metrics(one), run_dir.load_metrics(other)
  assert [line['round'] for line in got] == list(range(1, ROUNDS + 1))
  for line in got + want:
    for clock in CLOCKS:
      assert line.pop(clock) > 0
  assert got == want
  assert not [*one.rglob('*.tmp')]  # nothing half written


def test_a_killed_run_ends_with_the_bits_of_an_unbroken_one(runs):
  _, folder, newest = runs
  output = finish(start(folder / 'killed'), folder / 'killed')
  assert f'Continuing after round {newest} of {ROUNDS}.' in output
  check_end(folder, 'killed')


@pytest.mark.long
@pytest.mark.skipif(num_cores() < 2, reason='needs two cores')
def test_two_cores_continue_what_one_began(runs):
  """Each trains clients of its own, and changes no more than rounding."""
  _, folder, _ = runs
  flags = '--xla_backend_optimization_level=0'  # compiles quickly
  process = start(folder / 'on_two', flags, devices=2)
  output = finish(process, folder / 'on_two')
  assert '2 devices (cpu)' in output
  got, want = (
    run_dir.load_clients(folder / name).scores['initial'].loss
    for name in ('on_two', 'unbroken')
  )
  np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.long
def test_a_damaged_checkpoint_is_told(runs):
  """The newest is cut short: the run continues from the one before."""
  _, folder, newest = runs
  workdir = folder / 'stopped'
  largest = max(
    (workdir / 'checkpoints' / str(newest)).rglob('*'),
    key=lambda path: path.stat().st_size if path.is_file() else -1,
  )
  largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
  lines = finish(start(workdir), workdir).splitlines()
  line = next(line for line in lines if 'is damaged' in line)
  assert line.startswith(f'Checkpoint {newest} (state.npz')
  assert 'was changed or cut short' in line
  assert line.endswith(f'continuing from {newest - 1}.')
  assert f'Continuing after round {newest - 1} of {ROUNDS}.' in lines
  check_end(folder, 'stopped')


def test_a_stored_model_is_built_again_from_the_files_alone(runs):
  experiment, folder, _ = runs
  path = folder / 'unbroken' / 'model'
  params, about = pfl.load_model(path / 'global.npz')
  shape = {name: about[name] for name in ('image_shape', 'num_classes')}
  task = pfl.make_task(about['model'], **shape, conv_impl='lax')
  test, normalise = experiment.test, experiment.task.normalise
  params = jax.tree.map(jnp.asarray, params)

  def correct(index, count):
    own = test._replace(index=index, count=count)
    return score_view(task.logits, params, own, normalise).correct

  scores = run_dir.load_clients(folder / 'unbroken').scores['initial']
  got = jax.jit(jax.vmap(correct))(test.index, test.count)
  assert np.array_equal(got, scores.correct)
  # A view that is more than parameters comes back as nested dicts.
  view, about = pfl.load_model(path / 'templates_euclidean_client3.npz')
  assert about['view'] == 'templates_euclidean' and about['client'] == 3
  assert_same_bits(jax.tree.map(jnp.asarray, view['model']['params']), params)
  assert view['model']['means'].shape == (10, 64)

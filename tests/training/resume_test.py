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

from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.models.registry import make_task
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.training.build import build_experiment

ROOT = Path(run_dir.__file__).parents[2]
ROUNDS = 8
COMMAND = [
  sys.executable,
  'experiments/main.py',
  '--config=configs/digits.py:fedbabu',
  '--config.conv_impl=lax',  # compiles in half the time
  '--config.num_clients=10',
  '--config.max_train_examples=200',
  '--config.client_fraction=0.5',
  f'--config.rounds={ROUNDS}',
  '--config.local_epochs=1',
  '--config.views=initial,templates_euclidean',
  '--config.eval_every=5',
  '--config.checkpoint_every=1',
  '--config.save_clients=0,3',
]
CLOCKS = ('time', 'images_per_second')


def start(workdir, cache, *changes):
  """Start the command as a user does; its output goes to files."""
  environ = {
    **os.environ,
    'XLA_FLAGS': QUICK,  # quick to compile
    'JAX_COMPILATION_CACHE_DIR': str(cache),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  with open(f'{workdir}.log', 'w') as log:
    return subprocess.Popen(
      [*COMMAND, *changes, f'--workdir={workdir}'],
      cwd=ROOT,
      env=environ,
      stdout=log,
      stderr=subprocess.STDOUT,
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


def arrays_of(path):
  with np.load(path, allow_pickle=False) as arrays:
    return {
      name: (arrays[name].dtype, arrays[name].shape, arrays[name].tobytes())
      for name in arrays.files
    }


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """Return the output of both runs, and the folder that holds their workdirs.

  unbroken and killed; stopped is a copy of the latter as the kill left it.
  """
  folder = tmp_path_factory.mktemp('runs')
  cache = folder / 'compiled'
  paths = {name: folder / name for name in ('unbroken', 'killed')}
  first = start(paths['killed'], cache)
  kill_in_the_middle(first, paths['killed'])
  assert not (paths['killed'] / run_dir.RESULT).exists()
  shutil.copytree(paths['killed'], folder / 'stopped')
  newest = checkpoint.steps(folder / 'stopped' / 'checkpoints')[-1]
  # Both at once, and what the first has compiled serves them.
  processes = {name: start(path, cache) for name, path in paths.items()}
  output = {name: finish(processes[name], paths[name]) for name in paths}
  return output, folder, newest


def check_end(folder, name):
  """Check that a run ended like the unbroken one, with nothing left over."""
  one, other = folder / name, folder / 'unbroken'
  assert arrays_of(one / run_dir.CLIENTS) == arrays_of(other / run_dir.CLIENTS)
  models = sorted(path.name for path in (other / 'model').iterdir())
  assert models == [
    'global.npz',
    'templates_euclidean_client0.npz',
    'templates_euclidean_client3.npz',
  ]
  for model in models:
    assert arrays_of(one / 'model' / model) == arrays_of(
      other / 'model' / model
    )
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
  output, folder, newest = runs
  assert 'Continuing' not in output['unbroken']
  assert 0 < newest < ROUNDS
  assert f'Continuing after round {newest} of {ROUNDS}.' in output['killed']
  check_end(folder, 'killed')


@pytest.mark.long
@pytest.mark.parametrize(
  'changes',
  [(), ('--config.checkpoint_every=8', '--config.log_every=3')],
  ids=['same', 'calls'],  # the latter: of 3, 2, 1 and 2 rounds; else all of 1
)
def test_another_process_ends_with_the_same_bits(runs, tmp_path, changes):
  _, folder, _ = runs
  workdir, other = tmp_path / 'again', folder / 'unbroken'
  finish(start(workdir, tmp_path / 'compiled', *changes), workdir)
  assert len(run_dir.load_metrics(workdir)) == (4 if changes else ROUNDS)
  names = [
    run_dir.CLIENTS,
    *(path.relative_to(other) for path in (other / 'model').iterdir()),
  ]
  assert len(names) == 4
  for name in names:
    assert arrays_of(workdir / name) == arrays_of(other / name)


@pytest.mark.long
def test_a_damaged_checkpoint_is_told(runs):
  """The newest is cut short: the run continues from the one before."""
  _, folder, newest = runs
  largest = max(
    (folder / 'stopped' / 'checkpoints' / str(newest)).rglob('*'),
    key=lambda path: path.stat().st_size if path.is_file() else -1,
  )
  largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
  workdir = folder / 'stopped'
  lines = finish(start(workdir, folder / 'compiled'), workdir).splitlines()
  line = next(line for line in lines if 'is damaged' in line)
  assert line.startswith(f'Checkpoint {newest} (state.npz')
  assert 'was changed or cut short' in line
  assert line.endswith(f'continuing from {newest - 1}.')
  assert f'Continuing after round {newest - 1} of {ROUNDS}.' in lines
  check_end(folder, 'stopped')


def test_a_stored_model_is_built_again_from_the_files_alone(runs):
  _, folder, _ = runs
  workdir = folder / 'unbroken'
  experiment = build_experiment(run_dir.load_config(workdir)['config'])
  params, about = load_model(workdir / 'model' / 'global.npz')
  task = make_task(
    about['model'],
    image_shape=about['image_shape'],
    num_classes=about['num_classes'],
    conv_impl='lax',
  )
  test, normalise = experiment.test, experiment.task.normalise
  params = jax.tree.map(jnp.asarray, params)
  correct = jax.jit(
    jax.vmap(
      lambda index, count: (
        score_view(
          task.logits,
          params,
          test._replace(index=index, count=count),
          normalise,
        ).correct
      )
    )
  )(test.index, test.count)
  scores = run_dir.load_clients(workdir).scores
  assert np.array_equal(correct, scores['initial'].correct)
  # A view that is more than parameters comes back as nested dicts.
  path = workdir / 'model' / 'templates_euclidean_client3.npz'
  view, about = load_model(path)
  assert about['view'] == 'templates_euclidean' and about['client'] == 3
  assert_same_bits(jax.tree.map(jnp.asarray, view['model']['params']), params)
  assert view['model']['means'].shape == (10, 64)

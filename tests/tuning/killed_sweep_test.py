"""SIGKILL of the command at several moments: the same table, nothing twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_runs
from compiler import QUICK

from fedjax_pfl.runs import run_dir

ROOT = Path(run_dir.__file__).parents[2]
ROUNDS = 6
COMMAND = [
  sys.executable,
  'experiments/sweep.py',
  '--config=configs/digits.py:fedprox',
  *('--grid', 'learning_rate=0.1,0.01', '--grid', 'hp.mu=0.01,1.0'),
  '--seeds=2',
  '--tune=validation',
  '--config.validation_fraction=0.2',
  '--config.conv_impl=lax',
  '--config.num_clients=10',
  '--config.max_train_examples=200',
  f'--config.rounds={ROUNDS}',
  '--config.local_epochs=1',
  "--config.views=('initial',)",
  '--config.eval_every=1',
]


def start(folder):
  environ = {
    **os.environ,
    'XLA_FLAGS': QUICK,
    'JAX_COMPILATION_CACHE_DIR': str(folder.parent / 'cache'),
  }
  with open(folder.with_suffix('.log'), 'w') as log:
    return subprocess.Popen(
      [*COMMAND, f'--runs={folder}'],
      cwd=ROOT,
      env=environ,
      stdout=log,
      stderr=subprocess.STDOUT,
    )


def end(folder):
  assert start(folder).wait() == 0, folder.with_suffix('.log').read_text()
  lines = folder.with_suffix('.log').read_text().splitlines()
  (head,) = [place for place, one in enumerate(lines) if one.startswith('lear')]
  return [line for line in lines[head:] if str(folder) not in line]


def num_lines(folder):
  return sum(
    len(path.read_text().splitlines())
    for path in folder.glob(f'*/{run_dir.METRICS}')
  )


@pytest.mark.long
def test_a_killed_sweep_ends_in_the_same_table(tmp_path):
  whole, killed = tmp_path / 'whole', tmp_path / 'killed'
  table = end(whole)
  for lines in (3, 20, 8 * ROUNDS - 2):
    process = start(killed)
    while num_lines(killed) < lines:
      assert process.poll() is None
      time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
  assert end(killed) == table
  names = sorted(path.name for path in whole.iterdir())
  assert sorted(path.name for path in killed.iterdir()) == names
  assert len(names) == 8
  for name in names:
    small_runs.assert_same_run(killed / name, whole / name)
    rounds = [line['round'] for line in run_dir.load_metrics(killed / name)]
    assert rounds == [*range(1, ROUNDS + 1)]
  before = small_runs.snapshot(killed)
  assert end(killed) == table and small_runs.snapshot(killed) == before

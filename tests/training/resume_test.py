"""A killed process continues, and ends with the bits of an unbroken run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers import assert_same_bits
from pages import ROOT
from small_runs import models_of, numbers_of, settings_of

from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.program import Program

ROUNDS = 5
CONFIG = {
  'conv_impl': 'lax',  # compiles in half the time
  'partition': 'iid',
  'num_clients': 4,
  'max_train_examples': 40,
  'client_fraction': 0.5,
  'rounds': ROUNDS,
  'local_epochs': 1,
  'views': ('initial',),
  'eval_every': 4,
  'checkpoint_every': 1,
  'save_clients': (0, 3),
  'devices': 1,  # as this process has
}


def start(workdir):
  """Start the command as a user does; its output goes to a file."""
  words = {
    name: ','.join(map(str, own)) if isinstance(own, tuple) else own
    for name, own in CONFIG.items()
  }
  command = [
    *(sys.executable, 'experiments/main.py', f'--workdir={workdir}'),
    '--config=configs/digits.py:fedbabu',
    *[f'--config.{name}={word}' for name, word in words.items()],
  ]
  environ = {
    **os.environ,
    'JAX_NUM_CPU_DEVICES': '1',  # as here: it compiles what this one needs
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
  }
  with open(f'{workdir}.log', 'w') as log:
    return subprocess.Popen(
      command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
    )


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


def test_a_killed_run_ends_with_the_bits_of_an_unbroken_one(tmp_path, capsys):
  one, other = tmp_path / 'killed', tmp_path / 'unbroken'
  newest = kill_in_the_middle(start(one), one)
  assert 0 < newest < ROUNDS
  experiment = build_experiment(settings_of(arg='fedbabu', **CONFIG))
  program = Program(experiment)
  for workdir in (one, other):
    train(experiment, workdir, program)
  output = capsys.readouterr().out
  assert f'Continuing after round {newest} of {ROUNDS}.' in output
  assert_same_bits(models_of(one), models_of(other))
  got = numbers_of(one)
  assert got == numbers_of(other) and len(got['metrics']) == ROUNDS + 1
  assert not [*one.rglob('*.tmp')]  # nothing half written

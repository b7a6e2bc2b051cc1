"""`devices=2` divides a CPU of two cores, and changes no more than rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CORES = len(os.sched_getaffinity(0))
FLAGS = '--xla_backend_optimization_level=0'  # compiles quickly


def run(folder, devices):
  command = [
    *(sys.executable, 'experiments/main.py', f'--workdir={folder}'),
    '--config=configs/digits.py:fedper,quick',
    f'--config.devices={devices}',
  ]
  environ = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': FLAGS}
  return subprocess.run(
    command, cwd=ROOT, env=environ, capture_output=True, text=True
  )


@pytest.mark.skipif(CORES < 2, reason='needs two cores')
def test_two_cores_train_a_client_each(tmp_path):
  results = []
  for devices in (1, 2):
    folder = tmp_path / str(devices)
    done = run(folder, devices)
    assert done.returncode == 0, done.stderr
    assert ('2 devices (cpu)' in done.stdout) == (devices == 2)
    losses = np.load(folder / 'clients.npz')['finetuned/loss']
    results.append((json.loads((folder / 'result.json').read_text()), losses))
  (one, losses), (two, other) = results
  assert one['rounds'] == two['rounds']
  np.testing.assert_allclose(losses, other, rtol=1e-3)


def test_more_devices_than_cores(tmp_path):
  done = run(tmp_path / 'run', CORES + 1)
  assert done.returncode
  assert f'devices: got {CORES + 1}' in done.stderr
  assert 'on a CPU more than it has cores' in done.stderr
  assert not (tmp_path / 'run').exists()

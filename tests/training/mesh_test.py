"""A run on a mesh, whose states no device has all of, is that on one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compiler import QUICK

from fedjax_pfl.training import loop

ROOT = Path(loop.__file__).parents[2]


@pytest.mark.long
def test_a_run_on_devices_is_that_on_one(tmp_path):
  """Without a client that diverges, and continued on other devices."""
  done = subprocess.run(
    [sys.executable, str(ROOT / 'tests' / 'runs_on_devices.py'), str(tmp_path)],
    env={
      **os.environ,
      'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}',
      'XLA_FLAGS': f'--xla_force_host_platform_device_count=4 {QUICK}',
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  *log, found = done.stdout.splitlines()
  for name, differs in json.loads(found).items():
    assert differs['difference'] < 1e-12, name
    assert differs['excluded'] == [[[2, 3]], []], name
  assert any('Continuing after round 2 of 4' in line for line in log)

"""Programs are compiled for arrays that lie where those of a run lie."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compiler import QUICK

SCRIPT = Path(__file__).with_name('on_a_mesh.py')
ROOT = SCRIPT.parents[2]


@pytest.mark.long
def test_states_are_divided_as_in_a_run():
  done = subprocess.run(
    [sys.executable, str(SCRIPT)],
    env={
      **os.environ,
      'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}',
      'XLA_FLAGS': f'--xla_force_host_platform_device_count=3 {QUICK}',
    },
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  found = json.loads(done.stdout)
  assert found['names'] == ['server', 'clients', 'cohort', 'data', 'key']
  assert found['program'] == found['run']
  _, clients = found['run']
  assert clients and all(own == [12, 4] for own in clients)  # 10 clients, 3
  assert all(total == own for total, own in found['data'])
  assert {*found['share']} == {*found['results']} == {4}

"""Run code of the tests on simulated devices, in a process of its own.

Their number has to be set before jax starts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from compiler import QUICK
from pages import ROOT

SUPPORT = Path(__file__).parent


def call(devices: int, name: str, *args, timeout: float | None = None):
  """Return what `module.function` of tests/support returns, through JSON."""
  module = name.partition('.')[0]
  program = f'import json, {module}; print(json.dumps({name}(*{args!r})))'
  count = f'--xla_force_host_platform_device_count={devices}'
  done = subprocess.run(
    [sys.executable, '-c', program],
    env={
      **os.environ,
      'PYTHONPATH': f'{ROOT}:{SUPPORT}',
      'XLA_FLAGS': f'{count} {QUICK}',
    },
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stderr[-5000:]
  return json.loads(done.stdout.splitlines()[-1])

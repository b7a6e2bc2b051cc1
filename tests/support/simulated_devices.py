"""Run code of the tests on simulated devices, in a process of its own.

Their number has to be set before jax starts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from compiler import QUICK

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent


def output_of(
  script: str, devices: int, *words: str, timeout: float | None = None
) -> list[str]:
  """Return the lines that a script, named from tests/, prints."""
  return _lines([str(TESTS / script), *words], devices, timeout)


def call(devices: int, name: str, *args, timeout: float | None = None):
  """Return what `module.function` of tests/support returns, through JSON."""
  module = name.partition('.')[0]
  program = f'import json, {module}; print(json.dumps({name}(*{args!r})))'
  return json.loads(_lines(['-c', program], devices, timeout)[-1])


def _lines(words, devices, timeout):
  count = f'--xla_force_host_platform_device_count={devices}'
  done = subprocess.run(
    [sys.executable, *words],
    env={
      **os.environ,
      'PYTHONPATH': f'{TESTS.parent}:{TESTS}:{SUPPORT}',
      'XLA_FLAGS': f'{count} {QUICK}',
    },
    capture_output=True,
    text=True,
    timeout=timeout,
  )
  assert done.returncode == 0, done.stderr[-5000:]
  return done.stdout.splitlines()

"""Run a script of the tests on simulated devices, in a process of its own.

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
  count = f'--xla_force_host_platform_device_count={devices}'
  done = subprocess.run(
    [sys.executable, str(TESTS / script), *words],
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


def found(script: str, devices: int, *words: str) -> dict:
  """Return what a script of tests/support prints in its last line, as JSON."""
  *_, line = output_of(f'support/{script}.py', devices, *words)
  return json.loads(line)

"""Run a command of experiments/ as a user does."""

import os
import subprocess
import sys
from pathlib import Path

from compiler import QUICK

ROOT = Path(__file__).parents[2]
ENVIRON = {
  'PYTHONDONTWRITEBYTECODE': '1',
  'XLA_FLAGS': f'{os.environ.get("XLA_FLAGS", "")} {QUICK}',
}


def run(file, *flags, cwd=ROOT, **environ):
  """Return the finished process of experiments/FILE.py, with its output."""
  return subprocess.run(
    [
      sys.executable,
      str(ROOT / 'experiments' / f'{file}.py'),
      *map(str, flags),
    ],
    cwd=cwd,
    env={**os.environ, **ENVIRON, **environ},
    capture_output=True,
    text=True,
  )


def refusal(done) -> str:
  """Return the sentence with which a command ended."""
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert 'got ' in done.stderr and 'Likely cause: ' in done.stderr
  return done.stderr

"""The command experiments/prepare.py, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*words):
  """Return the status and what was printed, behind a proxy that is not."""
  # Port 9 discards: nothing leaves this machine.
  proxies = {
    f'{name}_proxy': 'http://127.0.0.1:9' for name in ('http', 'https')
  }
  done = subprocess.run(
    [sys.executable, 'experiments/prepare.py', *words],
    cwd=ROOT,
    env={**os.environ, **proxies},
    capture_output=True,
    text=True,
  )
  return done.returncode, done.stdout + done.stderr


def test_without_a_network_it_says_what_to_do(tmp_path):
  status, text = run('mnist', f'--data_dir={tmp_path / "data"}')
  assert status == 1 and 'Traceback' not in text
  assert "train-images-idx3-ubyte.gz: got 'Connection refused, from" in text
  assert text.count('  as mnist-') == 4
  assert 'a machine without a network' in text
  assert not [*tmp_path.iterdir()]


def test_it_wants_names(tmp_path):
  status, text = run(f'--data_dir={tmp_path}')
  assert status == 1 and 'names of image sets' in text

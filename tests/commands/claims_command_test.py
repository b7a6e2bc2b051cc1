"""experiments/claims.py: what it prints, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*flags):
  return subprocess.run(
    [sys.executable, 'experiments/claims.py', *flags],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
  )


def test_without_results_every_claim_is_not_run(tmp_path):
  shown = run(f'--results={tmp_path}')
  assert shown.returncode == 0, shown.stderr
  lines = shown.stdout.splitlines()
  assert sum(line.endswith(': not run') for line in lines) == 8
  assert lines[2].split() == [
    *('(a)', 'FedBABU', '>', 'FedAvg'),
    *('+6.70', 'not', 'run'),
  ]
  assert not [*tmp_path.iterdir()]


def test_a_mistake_is_a_sentence(tmp_path):
  text = (ROOT / 'results' / 'claims.toml').read_text()
  wrong = tmp_path / 'claims.toml'
  wrong.write_text(text.replace('algorithm=fedper', 'algorithm=fedpr', 1))
  refused = run(f'--claims={wrong}', '--write')
  assert refused.returncode == 1 and refused.stdout == ''
  assert '[[claims.comparisons]] 2: --where: got' in refused.stderr
  assert 'Choices: fedbabu, fedavg, fedper' in refused.stderr
  assert 'Traceback' not in refused.stderr

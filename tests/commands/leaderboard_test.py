"""make leaderboard: what it says where it cannot train."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_without_images_it_says_how_to_get_them(tmp_path):
  folder = tmp_path / 'leaderboard'
  refused = subprocess.run(
    [
      *(sys.executable, 'experiments/leaderboard.py', '--form=cifar10'),
      *('--minutes=1', '--seeds=3,4', f'--folder={folder}'),
    ],
    cwd=ROOT,
    env={**os.environ, 'TFDS_DATA_DIR': str(tmp_path / 'none')},
    capture_output=True,
    text=True,
  )
  assert refused.returncode == 1
  assert 'Leaderboard cifar10: 208 trainings (' in refused.stdout
  assert 'experiments/prepare.py cifar10' in refused.stderr
  assert 'Traceback' not in refused.stderr
  assert not folder.exists()


def test_make_runs_the_digits():
  lines = (ROOT / 'Makefile').read_text().splitlines()
  rule = lines.index('leaderboard: $(VENV)/installed')
  assert lines[rule + 1].endswith('experiments/leaderboard.py')

"""make leaderboard: what its flags refuse; nothing is trained."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
  ('flag', 'words'),
  [
    ('--form=cifar', "form: got 'cifar', expected a form of the leaderboard"),
    ('--against=none.csv', "against: got 'none.csv', expected the CSV of a"),
    ('--form=cifar10', 'experiments/prepare.py cifar10'),
    ('--minutes=0', 'minutes: got 0.0, expected a number of minutes above 0'),
  ],
)
def test_a_wrong_flag_is_a_sentence(tmp_path, flag, words):
  folder = tmp_path / 'leaderboard'
  refused = subprocess.run(
    [sys.executable, 'experiments/leaderboard.py', flag, f'--folder={folder}'],
    cwd=ROOT,
    env={**os.environ, 'TFDS_DATA_DIR': str(tmp_path / 'none')},
    capture_output=True,
    text=True,
  )
  assert refused.returncode == 1
  assert words in refused.stderr and 'Likely cause: ' in refused.stderr
  assert 'Traceback' not in refused.stderr
  assert not folder.exists()


def test_make_runs_the_digits():
  lines = (ROOT / 'Makefile').read_text().splitlines()
  rule = lines.index('leaderboard: $(VENV)/installed')
  assert lines[rule + 1].endswith('experiments/leaderboard.py')

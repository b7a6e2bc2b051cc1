"""The page and the help text name every field, as the code has it now."""

import subprocess
import sys
from pathlib import Path

from fedjax_pfl.settings import FIELDS, document

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_code():
  stored = (ROOT / 'docs' / 'settings.md').read_text()
  assert stored == document.as_markdown(), (
    'docs/settings.md: python experiments/settings.py --write'
  )
  for name, field in FIELDS.items():
    assert f'| `{name}` |' in stored and field.help in stored


def test_the_command_prints_name_default_and_meaning():
  run = subprocess.run(
    [sys.executable, 'experiments/settings.py'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  lines = run.stdout.splitlines()
  assert '  num_clients (100): registered clients, K' in lines
  assert all(len(line) <= document.WIDTH for line in lines)
  for name in FIELDS:
    assert any(line.startswith(f'  {name} (') for line in lines), name

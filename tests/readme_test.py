"""The examples of README, in fewer rounds, and of the page for your data."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROOT = Path(__file__).parents[1]


def code_of(page):
  return re.search(r'```python\n(.*?)```', (ROOT / page).read_text(), re.S)[1]


def test_a_run_prints_accuracies(capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  code = code_of('README.md').replace("'rounds': 16", "'rounds': 4")
  assert "'rounds': 4" in code
  exec(compile(code, 'README.md', 'exec'), {})
  *_, initial, finetuned = capsys.readouterr().out.splitlines()
  assert initial.split()[0] == 'initial'
  assert float(finetuned.split()[1]) > float(initial.split()[1])


def test_rounds_on_arrays_are_made(capsys):
  scope = {}
  exec(compile(code_of('docs/howto/own_data.md'), 'page', 'exec'), scope)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines[:3]] == ['0', '1', '2']
  assert lines[3].startswith('[') and len(lines) == 4
  assert int(scope['server'].round) == 3

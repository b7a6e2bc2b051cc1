"""The examples of README, in fewer rounds, and of the page for your data."""

import pytest
from pages import code_of

pytestmark = pytest.mark.usefixtures('quick_compiler')


def test_a_run_prints_accuracies(capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  code = code_of('README.md')[0].replace("'rounds': 16", "'rounds': 4")
  assert "'rounds': 4" in code
  exec(compile(code, 'README.md', 'exec'), {})
  *_, initial, finetuned = capsys.readouterr().out.splitlines()
  assert initial.split()[0] == 'initial'
  assert float(finetuned.split()[1]) > float(initial.split()[1])


def test_rounds_on_arrays_are_made(capsys):
  scope = {}
  exec(compile(code_of('docs/howto/own_data.md')[0], 'page', 'exec'), scope)
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines[:3]] == ['0', '1', '2']
  assert lines[3].startswith('[') and len(lines) == 4
  assert int(scope['server'].round) == 3

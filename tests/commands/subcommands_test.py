"""fedjax-pfl SUBCOMMAND is the file of experiments/, in a clone and a wheel."""

import ast
import subprocess
import sys

import pytest

from fedjax_pfl import __main__ as program
from fedjax_pfl.core import commands


def run(monkeypatch, *words):
  monkeypatch.setattr(sys, 'argv', ['fedjax-pfl', *words])
  program.main()


def test_every_subcommand_has_its_file_and_its_line_of_help(
  monkeypatch, capsys
):
  run(monkeypatch, '--help')
  printed = capsys.readouterr().out
  for name, (stem, text) in commands.SUBCOMMANDS.items():
    assert f'  {name:16} {text}\n' in f'{printed}\n'
    file = commands.folder() / 'experiments' / f'{stem}.py'
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_an_unknown_subcommand_names_the_nearest(monkeypatch):
  with pytest.raises(SystemExit, match='did you mean train'):
    run(monkeypatch, 'trian')


def test_a_wheel_brings_commands_and_configs(tmp_path):
  """The package alone, as in site-packages; its links become folders."""
  site = tmp_path / 'site'
  site.mkdir()
  copy = ['cp', '-rL', str(commands.PACKAGE), str(site)]
  subprocess.run(copy, check=True)
  text = (
    f'import sys; sys.path.insert(0, {str(site)!r}); sys.argv = ["fedjax-pfl",'
    ' "train", "--config=digits:nobody", "--workdir=x"]\n'
    'from fedjax_pfl.core.commands import command; print(command("export"))\n'
    'from fedjax_pfl.__main__ import main; main()'
  )
  done = subprocess.run(
    [sys.executable, '-P', '-c', text],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert done.stdout.strip() == 'fedjax-pfl export'
  assert done.stderr.startswith("config argument: got 'nobody'"), done.stderr

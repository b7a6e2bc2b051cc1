"""fedjax-pfl SUBCOMMAND is the file of experiments/, in a clone and a wheel."""

import ast
import configparser
import os
import signal
import subprocess
import sys

import pytest
from helpers import refused

from fedjax_pfl import __main__ as program
from fedjax_pfl.core import commands
from fedjax_pfl.core.errors import check_installed


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
    'from fedjax_pfl.core import commands\n'
    'print(commands.pip_line("jinja2"))\n'
    'from fedjax_pfl.__main__ import main; main()'
  )
  done = subprocess.run(
    [sys.executable, '-P', '-c', text],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert done.stdout == "pip install 'fedjax_pfl[report]'\n"
  assert done.stderr.startswith("config argument: got 'nobody'"), done.stderr


def test_a_package_that_is_absent_is_a_sentence_with_its_extra(monkeypatch):
  extras = configparser.ConfigParser()
  extras.read(commands.PACKAGE.parent / 'setup.cfg')
  extras = extras['options.extras_require']
  for package, extra in commands.EXTRAS.items():
    name = {'sklearn': 'scikit-learn'}.get(package, package.replace('_', '-'))
    assert name in extras[extra].replace('_', '-')
    served = extra in extras['all'] or extra == 'wandb'
    assert served, extra
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  message = refused(check_installed, 'this command', 'jinja2')
  assert "the package jinja2: pip install -e '.[report]'" in message


def test_a_command_whose_output_nobody_reads_ends_quietly():
  reader, writer = os.pipe()
  os.close(reader)  # `settings | head`, which has seen enough
  command = [sys.executable, '-m', 'fedjax_pfl', 'settings']
  ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
  os.close(writer)
  assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b'')

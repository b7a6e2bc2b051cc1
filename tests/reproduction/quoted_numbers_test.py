"""The numbers that a config quotes are those that its command is to reproduce.

The docstrings of configs/ are read in the form that configs/common.py states.
The training of the command, with the fields of the line, and the way in which
it is evaluated have the keys of the cell with the quoted number.
"""

import functools
import importlib
import re
import shlex
from typing import NamedTuple

import pytest

from configs import common
from configs.tables.common import load_table
from experiments.commandline import read_settings
from fedjax_pfl.reproduction import published
from fedjax_pfl.reproduction.cells import OF_SERVER
from fedjax_pfl.reproduction.plan import evaluation_of
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

METRICS = {
  'initial': 'initial_accuracy',
  'personalised': 'personalized_accuracy',
  'top-1': 'global_accuracy',
  'top-5': 'top5_global_accuracy',
}
# Of ours, on the digits.
FILES = [path.stem for path in common.config_files() if path.stem != 'digits']
NUMBER = r'(\d+\.\d+)(?: \+- (\d+\.\d+))?'
LINE = re.compile(rf'Published \((\w+/\w+), ([\w-]+)\): {NUMBER}')
MORE = re.compile(rf'  {NUMBER}((?: +--config\.\S+)+)')
GRID = re.compile(r'Published \((\w+/\w+)\) +(\S.*)')
ROW = re.compile(rf'  (\w+)((?: +{NUMBER})+)((?: +--config\.\S+)*)')
COLUMN = re.compile(r'  (\S+)((?: +--config\.\S+)+)')


class Command(NamedTuple):
  """A command of a docstring, without the program."""

  config: str  # configs/FILE.py[:ARGUMENT]
  fields: dict[str, str]
  workdir: str


class Quoted(NamedTuple):
  """A number in a docstring, and the command that is to give it."""

  table: str
  metric: str  # '' where the column is no metric
  mean: float
  std: float | None
  command: Command


def lines_of(file):
  text = importlib.import_module(f'configs.{file}').__doc__
  return re.sub(r'\\\n\s*', '', text).splitlines()


def fields_of(text):
  pairs = [word.removeprefix('--config.') for word in shlex.split(text)]
  return dict(pair.split('=', 1) for pair in pairs)


def read_command(line):
  config, *fields, workdir = shlex.split(line)[2:]
  return Command(
    config.removeprefix('--config='),
    fields_of(shlex.join(fields)),
    workdir.removeprefix('--workdir='),
  )


def read(file):
  """Return the commands of a docstring, and its quoted numbers."""
  lines = lines_of(file)
  columns = {m[1]: fields_of(m[2]) for m in map(COLUMN.fullmatch, lines) if m}
  commands, quoted, table, heads = [], [], '', []
  for line in lines:
    if line.startswith('  python '):
      commands.append(read_command(line))
    elif match := LINE.fullmatch(line):
      table, heads = match[1], [match[2]]
      quoted.append(quote(table, heads[0], match[3], match[4], commands[-1]))
    elif table and (match := MORE.fullmatch(line)):
      own = with_fields(commands[-1], fields_of(match[3]))
      quoted.append(quote(table, heads[0], match[1], match[2], own))
    elif match := GRID.fullmatch(line):
      table, heads = match[1], match[2].split()
    elif table and (match := ROW.fullmatch(line)):
      own = with_argument(commands[-1], match[1])
      own = with_fields(own, fields_of(match[5]))
      numbers = re.findall(NUMBER, match[2])
      for head, (mean, std) in zip(heads, numbers, strict=False):
        cell = with_fields(own, columns.get(head, {}))
        quoted.append(quote(table, head, mean, std or None, cell))
    else:
      table = ''
  return commands, quoted


def quote(table, head, mean, std, command):
  metric = METRICS.get(head, '')
  return Quoted(
    table, metric, float(mean), None if std is None else float(std), command
  )


def with_fields(command, fields):
  return command._replace(fields={**command.fields, **fields})


def with_argument(command, argument):
  return command._replace(
    config=f'{command.config.partition(":")[0]}:{argument}'
  )


def train(command, commands):
  """Return settings and training key, also of the run at init_from."""
  settings = parse_config(read_settings(command.config, command.fields))
  start = ''
  if settings.init_from:
    (first,) = (one for one in commands if one.workdir == settings.init_from)
    start = train(first, commands)[1]
  return settings, keys.training_key(settings, '', start)


@functools.cache
def evaluations(table):
  """Return (cell, its evaluation) for every cell of a table."""
  return [(cell, evaluation_of(cell, 0)) for cell in load_table(table).cells]


def differences(settings, other):
  """Return the fields that differ, for the message of a failed test."""
  one, two = keys.flat(settings), keys.flat(other)
  return {
    name: (one.get(name), two.get(name))
    for name in one.keys() | two.keys()
    if one.get(name) != two.get(name)
  }


ALL = [(file, number) for file in FILES for number in read(file)[1]]


@pytest.mark.parametrize(
  ('file', 'number'),
  ALL,
  ids=[f'{file} {number.table} {number.mean}' for file, number in ALL],
)
def test_the_command_is_the_training_of_the_number(file, number):
  settings, key = train(number.command, read(file)[0])
  cells = [
    (cell, evaluation)
    for cell, evaluation in evaluations(number.table)
    if cell.published.mean == number.mean
    and number.std in (None, cell.published.std)
    and number.metric in ('', cell.published.metric)
    and cell.settings['algorithm'] == settings.algorithm
  ]
  assert cells, f'{number.table} has no such number of {settings.algorithm}'
  found = [one for one in cells if one[1].training.identity == key]
  assert found, differences(cells[0][1].training.settings, settings)
  cell, evaluation = found[0]
  assert keys.evaluation_key(settings) == evaluation.key
  views = {*settings.evaluation.views, *settings.evaluation.eval_views}
  assert cell.reading.view in views
  if cell.reading.measure in OF_SERVER:
    assert keys.flat(settings)['eval_global_model']


@pytest.mark.parametrize('file', FILES)
def test_no_published_number_is_quoted_in_another_form(file):
  """Else nothing would compare it: also of a method's name without a row."""
  printed = {(row.mean, row.std) for row in published.load()}
  text = ' '.join(lines_of(file))
  pairs = [
    (float(mean), float(std))
    for mean, std in re.findall(r'(\d+\.\d+)\s\+-\s+(\d+\.\d+)', text)
  ]
  read_pairs = [(one.mean, one.std) for one in read(file)[1]]
  assert [pair for pair in pairs if pair in printed] == [
    pair for pair in read_pairs if pair[1] is not None
  ]
  assert ('Published' in text) == bool(read_pairs)


def test_every_form_is_read():
  """Of the numbers of the configs none is lost by the reader."""
  assert len(ALL) >= 70
  assert {number.table.split('/')[0] for _, number in ALL} == {
    'fedbabu',
    'fedconcat',
    'superfed',
  }
  assert {file for file, _ in ALL} == {*FILES}

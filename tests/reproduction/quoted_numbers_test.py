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
FIELDS = r'((?: +--config\.\S+)*)'
LINE = re.compile(rf'Published \((\w+/\w+), ([\w-]+)\): ({NUMBER})')
GRID = re.compile(r'Published \((\w+/\w+)\) +(\S.*)')
ROW = re.compile(rf'  (?:([a-z]\w*) +)?({NUMBER}(?: +{NUMBER})*){FIELDS}')
COLUMN = re.compile(r'  (\S+)((?: +--config\.\S+)+)')


class Quoted(NamedTuple):
  """A number in a docstring, and the command that is to give it."""

  table: str
  metric: str  # '' where the column is no metric
  mean: float
  std: float | None
  config: str  # configs/FILE.py[:ARGUMENT]
  fields: dict[str, str]


def lines_of(file):
  text = importlib.import_module(f'configs.{file}').__doc__
  return re.sub(r'\\\n\s*', '', text).splitlines()


def fields_of(text):
  pairs = [word.removeprefix('--config.') for word in text.split()]
  return dict(pair.split('=', 1) for pair in pairs)


@functools.cache
def read(file):
  """Return {workdir: (config, fields)} of the commands, and quoted numbers."""
  lines = lines_of(file)
  columns = {m[1]: fields_of(m[2]) for m in map(COLUMN.fullmatch, lines) if m}
  commands, quoted, table = {}, [], ''
  for line in lines:
    if line.startswith('  python '):
      config, *words, workdir = shlex.split(line)[2:]
      config, fields = (
        config.removeprefix('--config='),
        fields_of(' '.join(words)),
      )
      commands[workdir.removeprefix('--workdir=')] = config, fields
    elif match := GRID.fullmatch(line):
      table, heads = match[1], match[2].split()
    elif match := LINE.fullmatch(line):
      table, heads, line = match[1], [match[2]], f'  {match[3]}'
    if table and (match := ROW.fullmatch(line)):
      own = config
      if match[1]:
        own = f'{config.partition(":")[0]}:{match[1]}'
      numbers = re.findall(NUMBER, match[2])
      for head, (mean, std) in zip(heads, numbers, strict=False):
        more = {**fields, **fields_of(match[7]), **columns.get(head, {})}
        number = float(mean), float(std) if std else None
        quoted.append(Quoted(table, METRICS.get(head, ''), *number, own, more))
    elif not line.startswith('Published'):
      table = ''
  return commands, quoted


def train(config, fields, commands):
  """Return settings and training key, also of the run at init_from."""
  settings = parse_config(read_settings(config, fields))
  start = ''
  if settings.init_from:
    start = train(*commands[settings.init_from], commands)[1]
  return settings, keys.training_key(settings, '', start)


@functools.cache
def evaluations(table):
  """Return (cell, its evaluation) for every cell of a table."""
  return [(cell, evaluation_of(cell, 0)) for cell in load_table(table).cells]


ALL = [(file, number) for file in FILES for number in read(file)[1]]


@pytest.mark.parametrize(
  ('file', 'number'),
  ALL,
  ids=[f'{file} {number.table} {number.mean}' for file, number in ALL],
)
def test_the_command_is_the_training_of_the_number(file, number):
  settings, key = train(number.config, number.fields, read(file)[0])
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
  near = keys.flat(cells[0][1].training.settings).items()
  assert found, [
    pair for pair in near if pair not in keys.flat(settings).items()
  ]
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
  found = re.findall(r'(\d+\.\d+)\s\+-\s+(\d+\.\d+)', text)
  pairs = [(float(mean), float(std)) for mean, std in found]
  read_pairs = [(one.mean, one.std) for one in read(file)[1] if one.std]
  assert [pair for pair in pairs if pair in printed] == read_pairs
  assert ('Published' in text) == bool(read(file)[1])


def test_every_form_is_read():
  """Of the numbers of the configs none is lost by the reader."""
  assert len(ALL) >= 70
  papers = {number.table.split('/')[0] for _, number in ALL}
  assert papers == {'fedbabu', 'fedconcat', 'superfed'}
  assert {file for file, _ in ALL} == {*FILES}

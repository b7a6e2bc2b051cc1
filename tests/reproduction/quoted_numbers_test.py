"""The numbers that a config quotes are those that its command is to reproduce.

The training of the command and the way in which it is evaluated have the keys
of the cell with the quoted number.
"""

import importlib
import re
import shlex

import pytest
from printed import load_table

from configs import common
from experiments.commandline import read_settings
from fedjax_pfl.reproduction.cells import OF_SERVER
from fedjax_pfl.reproduction.plan import evaluation_of
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

METRICS = {
  'initial': 'initial_accuracy',
  'personalised': 'personalized_accuracy',
  'best-test-round': 'best_test_accuracy',
  'top-1': 'global_accuracy',
  'top-5': 'top5_global_accuracy',
}
# Those of ours have no published number.
OURS = {'digits', 'shakespeare'}
FILES = [path.stem for path in common.config_files() if path.stem not in OURS]
LINE = re.compile(
  r'Published \((\S+), ([\w-]+)\): (\d+\.\d+)(?: \+- (\d+\.\d+))?'
)


def read(file):
  """Return {workdir: command} and (quoted number, command above it)."""
  text = importlib.import_module(f'configs.{file}').__doc__
  commands, quoted = {}, []
  for line in re.sub(r'\\\n\s*', '', text).splitlines():
    if line.startswith('  python experiments/main.py'):
      config, *words = shlex.split(line)[2:]
      pairs = [word.removeprefix('--config.').split('=', 1) for word in words]
      fields = dict(pairs)
      workdir = fields.pop('--workdir')
      command = config.removeprefix('--config='), fields
      commands[workdir] = command
    elif match := LINE.fullmatch(line):
      quoted.append((match.groups(), command))
  return commands, quoted


def train(command, commands):
  """Return settings and training key, also of the run at init_from."""
  settings, start = parse_config(read_settings(*command)), ''
  if settings.init_from:
    start = train(commands[settings.init_from], commands)[1]
  return settings, keys.training_key(settings, '', start)


@pytest.mark.parametrize('file', FILES)
def test_a_command_is_the_training_of_its_number(file):
  commands, quoted = read(file)
  assert quoted
  for (table, metric, mean, std), command in quoted:
    settings, key = train(command, commands)
    cells = [
      (cell, evaluation_of(cell, 0))
      for cell in load_table(table).cells
      if cell.published.mean == float(mean)
      and (std is None or cell.published.std == float(std))
      and cell.published.metric == METRICS[metric]
    ]
    found = [one for one in cells if one[1].training.identity == key]
    assert found, f'{table} has no number {mean} of this training'
    cell, evaluation = found[0]
    assert keys.evaluation_key(settings) == evaluation.key
    views = {*settings.evaluation.views, *settings.evaluation.eval_views}
    assert cell.reading.view in views
    if cell.reading.measure in OF_SERVER:
      assert settings.evaluation.eval_global_model

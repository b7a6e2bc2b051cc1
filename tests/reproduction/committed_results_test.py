"""What results/ holds is found by its keys, and makes its tables again."""

import csv
import shlex
import shutil
from pathlib import Path

import pytest

from configs.tables.common import load_configs, load_table
from experiments.commandline import read_settings
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.summary import read_csv, write_summary, write_table
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

RESULTS = Path(__file__).parents[2] / 'results'
ROWS = read_csv(RESULTS / 'summary.csv')
TABLES = sorted(
  path.stem
  for path in (RESULTS / 'tables').glob('*.csv')
  if '_fig' not in path.stem
)


def settings_of(row):
  """Return the settings of the command of a row."""
  _, _, config, *fields = shlex.split(row['command'])
  pairs = [one.removeprefix('--config.').split('=', 1) for one in fields]
  pairs = {name: text for name, text in pairs if name != '--workdir'}
  return parse_config(read_settings(config.removeprefix('--config='), pairs))


@pytest.mark.parametrize(
  'row', ROWS, ids=lambda row: f'{row["key"]}-{row["view"]}'
)
def test_the_key_of_a_row_is_that_of_its_command(row):
  """With other defaults or names of fields a number would not be found."""
  settings = settings_of(row)
  start = settings.init_from.removeprefix('runs/')
  training = keys.training_key(settings, row['data'], start)
  assert row['key'].partition('_')[0] == training
  if '_' in row['key']:
    assert row['key'].partition('_')[2] == keys.evaluation_key(settings)
  assert row['command'].endswith(f'--workdir=runs/{row["key"]}')
  view = row['view'].partition(':')[0]  # of 'personal:best_round'
  assert view in ('global', *settings.evaluation.views)


@pytest.fixture(scope='module')
def again(tmp_path_factory):
  """Return a copy of the summary and the runs; its tables are made again."""
  folder = tmp_path_factory.mktemp('results')
  shutil.copy(RESULTS / 'summary.csv', folder)
  tracked = shutil.ignore_patterns('checkpoints', 'model', 'tb', '.lock')
  shutil.copytree(RESULTS / 'runs', folder / 'runs', ignore=tracked)
  results = Results(folder)
  configs = {name: parse_config(one) for name, one in load_configs().items()}
  write_summary(results, configs, print)
  for name in TABLES:
    write_table(load_table(name.replace('_', '/')), results)
  return folder


def test_no_row_is_lost(again):
  """Compared without the name of the config, which may change."""

  def rows_of(folder):
    rows = read_csv(folder / 'summary.csv')
    return sorted(
      tuple(v for n, v in row.items() if n not in ('setting', 'command', 'run'))
      for row in rows
    )

  assert {*rows_of(RESULTS)} <= {*rows_of(again)}


@pytest.mark.parametrize('name', TABLES)
def test_a_table_has_every_number_that_was_run(again, name):
  """A training is in cells of several tables: none is left behind."""

  def rows_of(folder):
    with open(folder / 'tables' / f'{name}.csv') as stream:
      return [*csv.DictReader(stream)]

  assert rows_of(RESULTS) == rows_of(again)


def test_something_is_committed():
  assert len(ROWS) >= 15 and len(TABLES) >= 4

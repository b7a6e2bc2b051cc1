"""summary.csv: numbers, their commands, and rows without runs."""

import csv
import shlex
import shutil

import pytest
from finished_runs import make_run, make_settings
from pages import ROOT
from small_cells import cell_of

from configs import common
from configs.tables.common import load_configs, load_table
from experiments.commandline import read_settings
from experiments.reproduction.cells import Reading, Table
from experiments.reproduction.results import Results
from experiments.reproduction.summary_rows import (
  COLUMNS,
  command,
  read_csv,
  write_summary,
)
from experiments.reproduction.table_files import write_table
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

CONFIGS = {
  name: parse_config(common.load(name).to_dict())
  for name in (
    'fedbabu_cifar10:fedavg',
    'digits:fedbabu',
    'fedconcat:fedconcat',
  )
}
FEDCONCAT = common.load('fedconcat:fedconcat').to_dict()
GLOBAL = {'global': {'accuracy': 41.5}}
INITIAL = cell_of(make_settings(), 'initial_accuracy', Reading('initial'))
SERVER = cell_of(
  make_settings(), 'global_accuracy', Reading('initial', 'global')
)
TABLE = Table(
  'fedbabu/99', 'A toy', (INITIAL, SERVER), ('algorithm',), ('metric',)
)


def write(folder, table=TABLE):
  """Return summary.csv and the table, written from the runs in the folder."""
  results = Results(folder)
  write_summary(results, CONFIGS)
  path = write_table(table, results)
  return (folder / 'summary.csv').read_text(), path.read_text()


@pytest.fixture
def folder(tmp_path):
  make_run(tmp_path / 'runs' / 'a', result=GLOBAL)
  make_run(tmp_path / 'runs' / 'b', result=GLOBAL, seed=1)
  return tmp_path


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {
      **{'shards_per_client': 3, 'views': ('initial',), 'eval_views': ()},
      'rounds': 7,
    },
    {'algorithm': 'fedprox', 'hp': {'mu': 0.01, 'trainable': 'body'}},
    {**FEDCONCAT, 'hp': {}},  # a command cannot remove hp.clusters
  ],
)
def test_a_command_gives_back_its_settings(changes):
  settings = parse_config(make_settings(**changes))
  flat = {name: keys.flat(config) for name, config in CONFIGS.items()}
  text = command(settings, flat, 'runs/a b')
  assert keys.flat(settings_of(text)) == keys.flat(settings)
  assert text.endswith(" '--workdir=runs/a b'")


def settings_of(text):
  """Return the settings of a command."""
  _, file, config, *fields = shlex.split(text)
  assert file == 'experiments/main.py'
  pairs = [one.removeprefix('--config.').split('=', 1) for one in fields]
  pairs = {name: value for name, value in pairs if name != '--workdir'}
  return parse_config(read_settings(config.removeprefix('--config='), pairs))


def test_rows_and_their_file(tmp_path):
  views = ('initial', 'finetuned')
  place = {'data_dir': '/secret', 'clients_per_chunk': 2}
  path = tmp_path / 'runs' / 'a'
  first = make_run(path, views=views, shards_per_client=4, **place)
  make_run(tmp_path / 'runs' / 'b', result=GLOBAL, seed=1)
  text, _ = write(tmp_path)
  rows = list(csv.DictReader(text.splitlines()))
  assert tuple(rows[0]) == COLUMNS
  assert [(row['setting'], row['seed'], row['view']) for row in rows] == [
    ('digits:fedbabu', '1', 'global'),
    ('digits:fedbabu', '1', 'initial'),
    ('digits:fedbabu shards_per_client=4', '0', 'finetuned'),
    ('digits:fedbabu shards_per_client=4', '0', 'initial'),
  ]
  assert (rows[0]['mean'], rows[0]['std']) == ('41.5000', '')
  assert rows[1]['num_clients'] == '4'  # one has no images to train on
  assert rows[3]['command'] == (
    'python experiments/main.py --config=configs/digits.py:fedbabu '
    f'--config.shards_per_client=4 --workdir=runs/{keys.run_key(first)}'
  )
  assert rows[3]['machine'].endswith('cores') and rows[3]['run'] == 'a'
  assert '/secret' not in text and str(tmp_path) not in text


def test_a_number_stays_without_its_run_and_answers_no_cell(folder, capsys):
  summary, table = write(folder)
  (folder / 'runs').rename(folder / 'away')
  kept, none = write(folder)
  assert kept == summary.replace(',a\n', ',\n').replace(',b\n', ',\n')
  assert kept != summary and '0 of 2 cells run' in none
  (folder / 'away').rename(folder / 'runs')
  assert write(folder) == (summary, table)
  assert not capsys.readouterr().out


def test_another_number_is_replaced_and_that_is_logged(folder, capsys):
  write(folder)
  path = folder / 'summary.csv'
  mean = read_csv(path)[0]['mean']
  path.write_text(path.read_text().replace(f',{mean},', ',12.3400,', 1))
  write(folder)
  words = f'12.3400 in the summary is now {mean}.'
  assert words in capsys.readouterr().out
  assert read_csv(path)[0]['mean'] == mean


def test_a_summary_of_another_version_is_refused(tmp_path):
  path = tmp_path / 'summary.csv'
  path.write_text('setting,seed,view\na,0,initial\n')
  with pytest.raises(BadInput, match=r'summary\.csv with .* of this version'):
    read_csv(path)


# ---- Our results -------------------------------------------------------------

RESULTS = ROOT / 'results'
ROWS = read_csv(RESULTS / 'summary.csv')
TABLES = sorted(path.stem for path in (RESULTS / 'tables').glob('*_*.md'))


def test_the_key_of_a_row_is_that_of_its_command():
  """With other defaults or names of fields a number would not be found."""
  for row in ROWS:
    settings = settings_of(row['command'])
    start = settings.init_from.removeprefix('runs/')
    training, _, evaluation = row['key'].partition('_')
    assert training == keys.training_key(settings, row['data'], start), row
    assert evaluation in ('', keys.evaluation_key(settings)), row
    assert row['command'].endswith(f'--workdir=runs/{row["key"]}'), row
    view = row['view'].partition(':')[0]  # of 'personal:best_round'
    assert view in ('global', *settings.evaluation.views), row


def test_summary_and_tables_are_those_of_the_runs(tmp_path):
  """A training is in cells of several tables: none is left behind."""
  assert len(ROWS) >= 15 and len(TABLES) >= 4
  shutil.copy(RESULTS / 'summary.csv', tmp_path)
  tracked = shutil.ignore_patterns('checkpoints', 'model', 'tb', '.lock')
  shutil.copytree(RESULTS / 'runs', tmp_path / 'runs', ignore=tracked)
  results = Results(tmp_path)
  write_summary(results, load_configs())

  def numbers(folder):
    """Return the rows without the name of a config, which may change."""
    left_out = ('setting', 'command', 'run')
    return {
      tuple(value for name, value in row.items() if name not in left_out)
      for row in read_csv(folder / 'summary.csv')
    }

  assert numbers(RESULTS) <= numbers(tmp_path)
  for name in TABLES:
    path = write_table(load_table(name.replace('_', '/')), results)
    for again in (path, path.with_suffix('.csv')):
      assert again.read_text() == (RESULTS / 'tables' / again.name).read_text()

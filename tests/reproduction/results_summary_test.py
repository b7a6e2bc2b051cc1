"""summary.csv: numbers, their commands, and rows without runs."""

import csv
import shlex
import shutil

import pytest
from finished_runs import make_run, make_settings
from small_queue import cell_of

from configs import common
from experiments.commandline import read_settings
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.cells import Reading, Table
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.summary import (
  COLUMNS,
  command,
  read_csv,
  summary_rows,
  write_csv,
  write_summary,
  write_table,
)
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


def write(folder, table=TABLE, log=print):
  """Return summary.csv and the table, written from the runs in the folder."""
  results = Results(folder)
  write_summary(results, CONFIGS, log)
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
    {'dataset': 'cifar10', 'preprocessing': 'fedconcat', 'learning_rate': 1.0},
    {**FEDCONCAT, 'hp': {}},  # a command cannot remove hp.clusters
    {**FEDCONCAT, 'rounds': None, 'lr_milestones': (0.5,)},
  ],
)
def test_a_command_gives_back_its_settings(changes):
  settings = parse_config(make_settings(**changes))
  flat = {name: keys.flat(config) for name, config in CONFIGS.items()}
  words = shlex.split(command(settings, flat, 'runs/a b'))
  assert words[:2] == ['python', 'experiments/main.py']
  assert words[-1] == '--workdir=runs/a b'
  config = words[2].removeprefix('--config=')
  fields = [word.removeprefix('--config.') for word in words[3:-1]]
  read = read_settings(config, dict(field.split('=', 1) for field in fields))
  assert keys.flat(parse_config(read)) == keys.flat(settings)


def test_rows_and_their_file(tmp_path):
  views = ('initial', 'finetuned')
  place = {'data_dir': '/secret', 'clients_per_chunk': 2}
  path = tmp_path / 'runs' / 'a'
  first = make_run(path, views=views, shards_per_client=5, **place)
  make_run(tmp_path / 'runs' / 'b', result=GLOBAL, seed=1)
  rows = summary_rows(Results(tmp_path), CONFIGS)
  assert [(row['setting'], row['seed'], row['view']) for row in rows] == [
    ('digits:fedbabu', '1', 'global'),
    ('digits:fedbabu', '1', 'initial'),
    ('digits:fedbabu shards_per_client=5', '0', 'finetuned'),
    ('digits:fedbabu shards_per_client=5', '0', 'initial'),
  ]
  assert (rows[0]['mean'], rows[0]['std']) == ('41.5000', '')
  assert rows[1]['num_clients'] == '4'  # one has no images to train on
  assert rows[3]['command'] == (
    'python experiments/main.py --config=configs/digits.py:fedbabu '
    f'--config.shards_per_client=5 --workdir=runs/{keys.run_key(first)}'
  )
  assert rows[3]['machine'].endswith('cores') and rows[3]['run'] == 'a'
  write_csv(tmp_path / 'out' / 'a.csv', rows)
  text = (tmp_path / 'out' / 'a.csv').read_text()
  assert '/secret' not in text and str(tmp_path) not in text
  read = list(csv.DictReader(text.splitlines()))
  assert read == rows and tuple(read[0]) == COLUMNS


def test_numbers_stay_without_their_runs_and_a_run_answers_again(folder):
  summary, table = write(folder)
  (folder / 'runs').rename(folder / 'away')
  kept, same = write(folder)
  assert kept == summary.replace(',a\n', ',\n').replace(',b\n', ',\n')
  assert kept != summary
  # The same numbers, of both seeds and of the server, with a note.
  note = (
    '\n[1] Ours, seed 0, 1: a row of summary.csv whose run directory is gone.\n'
  )
  assert same.replace(' [1] |', ' |') == table + note
  assert '2 of 2 cells run' in same
  assert write(folder) == (kept, same)
  (folder / 'away').rename(folder / 'runs')
  logged = []
  assert write(folder, log=logged.append) == (summary, table) and not logged


def test_another_number_is_replaced_and_that_is_logged(folder):
  write(folder)
  path = folder / 'summary.csv'
  mean = read_csv(path)[0]['mean']
  path.write_text(path.read_text().replace(f',{mean},', ',12.3400,', 1))
  logged = []
  write(folder, log=logged.append)
  assert f'12.3400 in the summary is now {mean}.' in logged[0]
  assert read_csv(path)[0]['mean'] == mean


def test_a_row_answers_its_own_training_alone(folder):
  write(folder)
  shutil.rmtree(folder / 'runs')
  top5 = Reading('initial', 'global_top5')
  others = (
    INITIAL._replace(settings=make_settings(local_epochs=7)),
    INITIAL._replace(evaluation={'adapt_on': 'test_half'}),
    SERVER._replace(reading=top5),
  )
  assert '0 of 3 cells run' in write(folder, TABLE._replace(cells=others))[1]


@pytest.mark.parametrize('changes', [{'quick': True}, {'shards_per_client': 3}])
def test_another_training_answers_no_cell(tmp_path, changes):
  """Nor does one that may have had synthetic images, run or row."""
  make_run(tmp_path / 'runs' / 'a', result=GLOBAL, **changes)
  assert '0 of 2 cells run' in write(tmp_path)[1]
  shutil.rmtree(tmp_path / 'runs')
  assert '0 of 2 cells run' in write(tmp_path)[1]


@pytest.mark.parametrize(
  'text',
  [
    'setting,seed,view\na,0,initial\n',
    ','.join(COLUMNS) + '\n' + ','.join(['a'] * len(COLUMNS)) + '\n',
    ','.join(COLUMNS) + '\na,0\n',
    '',
    '\xff',
  ],
)
def test_a_summary_of_another_version_is_refused(tmp_path, text):
  path = tmp_path / 'summary.csv'
  path.write_bytes(text.encode('latin-1'))
  with pytest.raises(BadInput, match=r'summary\.csv with .* of this version'):
    read_csv(path)
  assert path.read_bytes() == text.encode('latin-1')

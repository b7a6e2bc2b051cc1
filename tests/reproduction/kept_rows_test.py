"""A number that stands in results/ stays when its run directory is gone."""

import shutil

import pytest
from finished_runs import make_run, make_settings

from configs import common
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.cells import Cell, Published, Reading, Table
from fedjax_pfl.reproduction.execution.execute import open_workspace
from fedjax_pfl.reproduction.output.kept_rows import read_csv
from fedjax_pfl.reproduction.output.run_summary import COLUMNS
from fedjax_pfl.reproduction.write_results import write_summary, write_table
from fedjax_pfl.settings import parse_config

CONFIGS = {
  'digits:fedbabu': parse_config(common.load('digits:fedbabu').to_dict())
}
DATA = 'images-clients'
GLOBAL = {'global': {'accuracy': 41.5}}


def cell_of(metric, reading, settings=None):
  setting = ('digits', 'tiny', 'fedbabu', 5, 2, 0.3, 1, 'shards')
  published = Published('fedbabu', '99', *setting, metric, {}, 50.0, 9.0)
  return Cell(published, settings or make_settings(), reading)


TABLE = Table(
  'fedbabu/99',
  'A toy',
  (
    cell_of('initial_accuracy', Reading('initial')),
    cell_of('global_accuracy', Reading('initial', 'global')),
  ),
  ('algorithm',),
  ('metric',),
)


def write(folder, table=TABLE, log=print):
  """Return summary.csv and the table, written from the runs in the folder."""
  workspace = open_workspace(folder)
  rows = write_summary(workspace, CONFIGS, log)
  path = write_table(table, (0,), workspace, lambda settings: DATA, rows)
  return (folder / 'summary.csv').read_text(), path.read_text()


@pytest.fixture
def folder(tmp_path):
  make_run(tmp_path / 'runs' / 'a', result=GLOBAL)
  make_run(tmp_path / 'runs' / 'b', result=GLOBAL, seed=1)
  return tmp_path


def leave_rows(folder):
  """Remove all but the summary, as a clone has it whose runs are elsewhere."""
  shutil.rmtree(folder / 'runs')


def test_numbers_stay_without_their_runs(folder):
  summary, table = write(folder)
  leave_rows(folder)
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


def test_a_run_that_is_back_answers_again(folder):
  before = write(folder)
  leave_rows(folder)
  write(folder)
  make_run(folder / 'runs' / 'a', result=GLOBAL)
  make_run(folder / 'runs' / 'b', result=GLOBAL, seed=1)
  logged = []
  summary, table = write(folder, log=logged.append)
  assert without_seconds(summary) == without_seconds(before[0])
  assert table == before[1] and logged == []


def test_another_number_is_replaced_and_that_is_logged(folder):
  path = folder / 'summary.csv'
  mean = read_csv_after(folder)[0]['mean']
  path.write_text(path.read_text().replace(f',{mean},', ',12.3400,', 1))
  logged = []
  write(folder, log=logged.append)
  assert f'12.3400 in the summary is now {mean}.' in logged[0]
  assert read_csv(path)[0]['mean'] == mean


def test_a_row_answers_its_own_training_alone(folder):
  write(folder)
  leave_rows(folder)
  settings = make_settings(local_epochs=7)
  cell = cell_of('initial_accuracy', Reading('initial'), settings)
  evaluated = TABLE.cells[0]._replace(evaluation={'adapt_on': 'test_half'})
  top5 = cell_of('top5_global_accuracy', Reading('initial', 'global_top5'))
  table = TABLE._replace(cells=(cell, evaluated, top5))
  assert '0 of 3 cells run' in write(folder, table)[1]


def test_images_that_are_elsewhere_are_those_of_the_runs(tmp_path):
  """A table is not emptied where the images of its runs are not."""
  own = make_settings(dataset='cifar10', data_dir=str(tmp_path))
  make_run(tmp_path / 'runs' / 'a', dataset='cifar10')
  table = TABLE._replace(
    cells=(cell_of('initial_accuracy', Reading('initial'), own),)
  )
  assert '1 of 1 cells run' in write(tmp_path, table)[1]
  other = cell_of(
    'initial_accuracy', Reading('initial'), {**own, 'shards_per_client': 3}
  )
  assert '0 of 1 cells' in write(tmp_path, table._replace(cells=(other,)))[1]


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


def read_csv_after(folder):
  write(folder)
  return read_csv(folder / 'summary.csv')


def without_seconds(text):
  return [line.split(',')[:9] for line in text.splitlines()]

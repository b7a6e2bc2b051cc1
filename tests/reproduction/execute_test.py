"""A table from nothing to its files, also when it is stopped on the way."""

import shutil

import pytest
import small_cells
import small_runs
from faults import watch
from helpers import long, refused

from configs import common
from experiments.reproduction import execute as module
from experiments.reproduction.cells import Reading, Table
from experiments.reproduction.compare import compare_all
from experiments.reproduction.dry_run import list_costs
from experiments.reproduction.plan import plan
from experiments.reproduction.results import Results
from experiments.reproduction.summary_rows import write_summary
from experiments.reproduction.table_files import as_text, write_table
from fedjax_pfl.compare import train
from fedjax_pfl.core import progress
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build_data, loop

pytestmark = pytest.mark.usefixtures('quick_compiler')
BABU = small_runs.make_settings(rounds=2)
LG = small_runs.make_settings(
  algorithm='lg_fedavg',
  rounds=2,
  hp={'train_fedavg': False, 'protocol': 'released', 'learning_rate': 0.3},
  eval_every=1,
)


def make_cell(metric, *reading, settings=BABU, variant=(), **more):
  cell = small_cells.cell_of(settings, metric, Reading(*reading), **more)
  return cell._replace(published=cell.published._replace(variant=dict(variant)))


BODY = {'finetune.trainable': 'body', 'finetune.learning_rate': 1.0}
OTHERS = {'test_partition': 'independent', 'test_shards_per_client': 10}
FINETUNED = 'personalized_accuracy', 'finetuned'
PART = {'finetune_trainable': 'body'}
INITIAL = make_cell('initial_accuracy', 'initial')
BEST = make_cell(
  *('personalized_accuracy', 'initial', 'best_finished'),
  settings=LG,
  init_from=BABU,
)
FEW = (
  INITIAL,
  make_cell(*FINETUNED),
  make_cell(*FINETUNED, evaluation=BODY, variant=PART),
  make_cell('id_accuracy_after', 'finetuned', 'own', evaluation=OTHERS),
)
CELLS = (*FEW, BEST)
TABLE = Table(
  'fedbabu/99', 'A toy', CELLS, ('finetune_trainable',), ('algorithm', 'metric')
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
  for user in (module, train.build):
    monkeypatch.setattr(user, 'build_experiment', small_cells.build)


def test_each_thing_is_done_once_and_all_cells_are_written(
  tmp_path, monkeypatch
):
  results, calls = Results(tmp_path), []

  def counted(function):
    def call(*args):
      calls.append(function.__name__)
      return function(*args)

    return call

  monkeypatch.setattr(loop, 'train', counted(loop.train))
  monkeypatch.setattr(module, 'scores_of', counted(module.scores_of))
  for _ in range(2):  # the second command does nothing
    module.execute(plan(FEW, (0,)), results)
  assert calls == ['train', 'scores_of', 'scores_of']
  compared = compare_all(FEW, results)
  assert all(one.ours.seeds == (0,) for one in compared)
  (run,) = results.runs.iterdir()
  result = run_dir.load_result(run)
  assert result['model'] == run_dir.model_digest(run)
  initial, finetuned, body, own = (one.ours.mean for one in compared)
  assert initial == result['views']['initial']['mean']
  assert finetuned == result['views']['finetuned']['mean']
  assert finetuned not in (body, own)
  path = write_table(TABLE, results)
  text = as_text(TABLE, compare_all(CELLS, results))
  assert '4 of 5 cells run' in text and '4 of 5 cells run' in path.read_text()
  lines = path.with_suffix('.csv').read_text().splitlines()
  assert len(lines) == 1 + len(CELLS)


def test_a_dry_run_lists_cells_and_trains_nothing(tmp_path, monkeypatch):
  """It needs no images: blank ones of the same size are measured."""
  monkeypatch.setitem(build_data.SIZES, 'cifar10', (600, 100))
  away = {**BABU, 'dataset': 'cifar10', 'data_dir': str(tmp_path)}
  cell = make_cell('initial_accuracy', 'initial', settings=away)
  logged, results = [], Results(tmp_path)
  monkeypatch.setattr(progress, 'log', logged.append)
  list_costs(TABLE, (*FEW[:3], cell), (0,), results)
  first, second, third, fourth = logged[-2].splitlines()[2:]
  for line in (first, fourth):
    assert ' train ' in line and line.endswith((' s', ' min'))
  assert 'with a cell above' in second and 'evaluate' in third
  assert '4 cells, 1 seed' in logged[-1]
  assert logged[-1].endswith('Data: cifar10, digits.')
  assert not results.runs.exists()


# ---- Stopped, and given again ------------------------------------------------


EVERY_ROUND = {'log_every': 1, 'eval_every': 1, 'checkpoint_every': 1}
LONGER = small_runs.make_settings(rounds=3, **EVERY_ROUND)
HOT = small_runs.make_settings(
  algorithm='fedavg', rounds=2, learning_rate=1e30, **EVERY_ROUND
)
ALL = (
  make_cell('initial_accuracy', 'initial', settings=HOT),  # it diverges
  make_cell(
    *('personalized_accuracy', 'initial', 'best_round'),
    settings={**LG, **EVERY_ROUND},
    init_from=LONGER,
  ),
  make_cell('initial_accuracy', 'initial', settings=LONGER),
  make_cell(*FINETUNED, settings=LONGER, evaluation=BODY),
)
NAMES = ('algorithm', 'shards_per_client')


def reproduce(folder):
  """Do what experiments/reproduce.py does with the cells and two seeds."""
  results = Results(folder)
  configs = {'digits': parse_config(common.load('digits:fedbabu').to_dict())}

  def write():
    write_summary(results, configs)
    write_table(Table('fedbabu/99', 'A toy', ALL, NAMES, ('metric',)), results)

  module.execute(plan(ALL, (0, 1)), results, on_done=write)


@pytest.fixture(scope='module')
def done(tmp_path_factory, quick_compiler):
  """Return finished results, their rows, and all states on the way."""
  folder, states = tmp_path_factory.mktemp('whole') / 'results', []
  folder.mkdir()

  def look(*change):
    states.append(watch.read(folder))

  with pytest.MonkeyPatch.context() as patched, watch.watching(folder, look):
    for user in (module, train.build):
      patched.setattr(user, 'build_experiment', small_cells.build)
    reproduce(folder)
  return folder, small_cells.rows_of(folder), states


def test_what_is_finished_runs_nothing(done, tmp_path, monkeypatch):
  """Nor in a clone: of what git keeps, models and checkpoints are absent."""
  monkeypatch.setattr(loop, 'train', None)
  copy = tmp_path / 'results'
  shutil.copytree(done[0], copy)
  for name in ('model', 'checkpoints', 'tb'):
    for path in copy.glob(f'runs/*/{name}'):
      shutil.rmtree(path)
  reproduce(copy)
  assert small_cells.rows_of(copy) == done[1]


@pytest.mark.parametrize('place', [0.25, long(0.5), long(0.75)])
def test_a_kill_ends_in_the_same_rows(done, place):
  """At a moment at which a file changes; the same command is given again."""
  folder, want, states = done
  assert len(states) > 100
  whole = folder.with_name('away')
  folder.rename(whole)  # init_from has the path
  try:
    watch.write(states[int(place * len(states))], folder)
    reproduce(folder)
    assert small_cells.rows_of(folder) == want
  finally:
    shutil.rmtree(folder, ignore_errors=True)
    whole.rename(folder)


def test_damage_is_a_sentence_and_changes_no_file(done, tmp_path, monkeypatch):
  monkeypatch.setattr(loop, 'train', None)
  copy = tmp_path / 'results'
  shutil.copytree(done[0], copy)
  for path in copy.glob('runs/lg_fedavg*'):  # something is to be run
    shutil.rmtree(path)
  (path,) = copy.glob('runs/fedbabu*seed0*/clients.npz')
  path.write_text('')
  before = watch.read(copy)
  assert str(path.parent) in refused(reproduce, copy)
  assert watch.read(copy) == before

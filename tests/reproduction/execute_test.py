"""A table from nothing to its files, also when it is stopped on the way."""

import shutil

import pytest
import small_queue
import small_runs

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction import execute as module
from fedjax_pfl.reproduction import forecast
from fedjax_pfl.reproduction.cells import Cell, Figure, Reading, Table
from fedjax_pfl.reproduction.compare import compare_all
from fedjax_pfl.reproduction.comparison_table import as_text, write_files
from fedjax_pfl.reproduction.dry_run import list_cells
from fedjax_pfl.reproduction.jobs import reproduce_figure
from fedjax_pfl.reproduction.merge import merge
from fedjax_pfl.reproduction.plan import (
  distinct_trainings,
  group_seeds,
  plan,
)
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import loop
from fedjax_pfl.training.divergence import Diverged
from fedjax_pfl.training.warm_start import model_digest

pytestmark = pytest.mark.usefixtures('quick_compiler')
BABU = small_runs.make_settings(rounds=2)
HOT = small_runs.make_settings(rounds=2, learning_rate=1e30)
LG = small_runs.make_settings(
  algorithm='lg_fedavg',
  rounds=2,
  hp={'train_fedavg': False, 'protocol': 'released', 'learning_rate': 0.3},
  eval_every=1,
)
SEEDS = (0, 1)


def make_cell(metric, view, measure='accuracy', settings=BABU, **more):
  cell = small_queue.cell_of(settings, metric, Reading(view, measure))
  variant = more.pop('variant', {})
  return cell._replace(
    published=cell.published._replace(variant=variant), **more
  )


BODY = {'finetune.trainable': 'body', 'finetune.learning_rate': 1.0}
OTHERS = {'test_partition': 'independent', 'test_shards_per_client': 10}
INITIAL = make_cell('initial_accuracy', 'initial')
BEST = make_cell(
  'personalized_accuracy', 'initial', 'best_finished', LG, init_from=BABU
)
FEW: tuple[Cell, ...] = (
  INITIAL,
  make_cell('personalized_accuracy', 'finetuned'),
  make_cell(
    *('personalized_accuracy', 'finetuned'),
    evaluation=BODY,
    variant={'finetune_trainable': 'body'},
  ),
  make_cell('id_accuracy_after', 'finetuned', 'own', evaluation=OTHERS),
)
CELLS = (*FEW, BEST)
DIVERGING = (
  make_cell('initial_accuracy', 'initial', settings=HOT),
  BEST._replace(init_from=HOT),
  INITIAL,
)
TABLE = Table(
  'fedbabu/99', 'A toy', CELLS, ('finetune_trainable',), ('algorithm', 'metric')
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(module, 'build_experiment', small_queue.build)


@pytest.fixture
def logged(monkeypatch):
  """Return a list that grows by what is logged."""
  lines = []
  monkeypatch.setattr(progress, 'log', lines.append)
  return lines


def twice(folder, cells):
  """Return results, trainings and evaluations, logs of a repeated command."""
  results, logs, calls = Results(folder), ([], []), []

  def counted(function):
    def call(*args):
      calls.append(function.__name__)
      return function(*args)

    return call

  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(module, 'build_experiment', small_queue.build)
    patched.setattr(loop, 'train', counted(loop.train))
    again = counted(module.evaluate_again)
    patched.setattr(module, 'evaluate_again', again)
    for log in logs:
      module.execute(plan(cells, (0,)), results, log.append)
  return results, calls, logs


@pytest.fixture(scope='module')
def finished(tmp_path_factory, quick_compiler):
  return twice(tmp_path_factory.mktemp('results'), FEW)


@pytest.fixture(scope='module')
def diverging(tmp_path_factory, quick_compiler):
  return twice(tmp_path_factory.mktemp('diverging'), DIVERGING)


def test_every_training_and_evaluation_is_planned_once():
  evaluations = plan(CELLS, SEEDS)
  # The run's own, the body alone, other tests, and LG-FedAvg's.
  assert len(evaluations) == 4 * len(SEEDS)
  ordered = distinct_trainings(evaluations)
  names = [one.settings.algorithm for one in ordered]
  assert names.count('fedbabu') == names.count('lg_fedavg') == len(SEEDS)
  for place, one in enumerate(ordered):  # runs come after those they start from
    assert one.init_from is None or one.init_from in ordered[:place]
  assert [len(group) for group in group_seeds(ordered)] == [2, 2]
  own = evaluations[0]
  assert own.readings == (Reading('initial'), Reading('finetuned'))
  assert len({one.identity for one in ordered}) == len(ordered)


def test_each_thing_is_done_once(finished):
  results, calls, _ = finished
  assert calls == ['train', 'evaluate_again', 'evaluate_again']
  compared = compare_all(FEW, results, SEEDS)
  assert all(one.ours.seeds == (0,) for one in compared)
  (run,) = results.runs.iterdir()
  result = run_dir.load_result(run)
  assert result['model'] == model_digest(run)
  initial, finetuned, body, own = (one.ours.mean for one in compared)
  assert initial == result['views']['initial']['mean']
  assert finetuned == result['views']['finetuned']['mean']
  assert finetuned not in (body, own)


def test_the_files_of_a_table_have_all_its_cells(tmp_path, finished):
  compared = compare_all(CELLS, finished[0])
  assert compared[-1].ours is None
  path = write_files(TABLE, compared, tmp_path)
  for text in (path.read_text(), as_text(TABLE, compared)):
    assert '4 of 5 cells run' in text
  lines = path.with_suffix('.csv').read_text().splitlines()
  assert len(lines) == 1 + len(CELLS)


@pytest.mark.long
def test_a_run_that_begins_with_another(tmp_path):
  """The model comes first; the best models are read from the checkpoint."""
  results = Results(tmp_path)
  module.execute(plan([BEST], (0,)), results, print)
  (one,) = compare_all([BEST], results)
  best = run_dir.load_result(next(tmp_path.glob('runs/lg*')))['test_best']
  assert one.ours.mean == best['initial']['finished']['mean']
  assert one.ours.mean != best['initial']['each']['mean']
  assert len(list(results.runs.iterdir())) == 2
  assert not module.lacking(plan([BEST], (0,))[0], Results(tmp_path))


def test_a_run_is_found_by_its_content(tmp_path, finished):
  """A directory of any name counts; another machine's results do, too."""
  evaluations = plan(FEW, (0,))
  copied = tmp_path / 'runs' / 'another_name'
  shutil.copytree(next(finished[0].runs.iterdir()), copied)
  results, merged = Results(tmp_path), Results(tmp_path / 'merged')
  assert results.path_of(evaluations[0].training) == copied
  assert merge(merged, finished[0]) == 3
  for one in (results, merged):
    assert not any(module.lacking(each, one) for each in evaluations)


def test_a_table_that_is_stopped_ends_the_same(tmp_path, finished, monkeypatch):
  def killed(*args):
    raise KeyboardInterrupt

  evaluations, stopped = plan(FEW[:3], (0,)), Results(tmp_path)
  with monkeypatch.context() as patched:
    patched.setattr(module, 'evaluate_again', killed)
    with pytest.raises(KeyboardInterrupt):
      module.execute(evaluations, stopped, print)
  monkeypatch.setattr(loop, 'train', killed)  # it is not trained again
  module.execute(evaluations, stopped, print)
  ours, theirs = (
    [one.ours for one in compare_all(FEW[:3], results)]
    for results in (finished[0], stopped)
  )
  assert ours == theirs


def test_a_dry_run_lists_cells_and_trains_nothing(tmp_path, logged):
  results = Results(tmp_path)
  list_cells(TABLE, CELLS[:3], (0,), results)
  first, second, third = logged[-2].splitlines()[2:]
  assert ' train ' in first and ' s ' in first and 'MiB' in first
  assert 'with a cell above' in second and 'evaluate' in third
  assert '3 cells, 1 seed' in logged[-1]
  assert not results.runs.exists()


def test_a_dry_run_needs_no_images(tmp_path, monkeypatch, logged):
  """Blank ones of the same size are measured."""
  monkeypatch.setattr(forecast, 'SIZES', {'cifar10': (600, 100)})
  away = {**BABU, 'dataset': 'cifar10', 'data_dir': str(tmp_path)}
  cell = make_cell('initial_accuracy', 'initial', settings=away)
  list_cells(TABLE, [cell], (0,), Results(tmp_path))
  assert ' train ' in logged[-2] and 'MiB' in logged[-2]


def test_a_training_that_diverges_ends_alone(tmp_path, diverging, logged):
  """Nor is the run that was to begin with it trained; the next cell is."""
  results, calls, (first, again) = diverging
  assert calls.count('train') == 2  # the second command trains nothing
  assert sum('NaN or infinity in rounds' in line for line in first) == 2
  assert sum('diverged before' in line for line in again) == 2
  compared = compare_all(DIVERGING, results)
  assert [one.diverged for one in compared] == [(0,), (0,), ()]
  assert [one.ours is None for one in compared] == [True, True, False]
  table = TABLE._replace(cells=DIVERGING)
  text = as_text(table, compared)
  assert '1 of 3 cells run; 2 diverged' in text
  assert sum(' diverged ' in line for line in text.splitlines()[3:5]) == 2
  assert 'Our training diverged with seed 0; the printed number, too' in text
  path = write_files(table, compared, tmp_path)
  assert '| diverged | 50.00' in path.read_text()
  assert path.with_suffix('.csv').read_text().count(',diverged,') == 2
  list_cells(table, DIVERGING[:2], (0,), results)
  assert all(' diverged ' in line for line in logged[0].splitlines()[2:])


def test_a_figure_of_a_run_that_diverged_is_refused(diverging):
  figure = Figure('fedbabu/fig99', 'A toy', {'hot': HOT}, 'features', {})
  with pytest.raises(BadInput, match='fig99, of which a run diverged'):
    reproduce_figure(figure, '', (0,), diverging[0])


@pytest.mark.long
def test_other_seeds_go_on_without_one_that_diverged(tmp_path, monkeypatch):
  """Without its file, that seed is trained again."""
  lost, train = [], loop.train

  def train_or_diverge(experiment, workdir, program):
    found = train(experiment, workdir, program)
    if experiment.settings.seed == 1 and not lost:
      lost.append(workdir)
      (workdir / 'result.json').unlink()
      raise Diverged('NaN or infinity', workdir)
    return found

  monkeypatch.setattr(loop, 'train', train_or_diverge)
  cells, results = FEW[:2], Results(tmp_path)
  module.execute(plan(cells, SEEDS), results, print)
  compared = compare_all(cells, results)
  assert [(x.ours.seeds, x.diverged) for x in compared] == [((0,), (1,))] * 2
  assert 'diverged with seed 1' in as_text(TABLE, compared)
  (lost[0] / 'diverged.json').unlink()
  module.execute(plan(cells, SEEDS), results, print)
  assert [one.ours.seeds for one in compare_all(cells, results)] == [SEEDS] * 2


def test_numbers_of_the_server_need_eval_global_model(finished):
  cell = make_cell('global_accuracy', 'initial', 'global')
  with pytest.raises(BadInput, match='eval_global_model'):
    compare_all([cell], finished[0])

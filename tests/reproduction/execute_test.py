"""A table from nothing to its files, also when it is stopped on the way."""

import shutil

import pytest
import small_queue
import small_runs

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction import execute as module
from fedjax_pfl.reproduction import forecast
from fedjax_pfl.reproduction.cells import Figure, Reading, Table
from fedjax_pfl.reproduction.compare import compare_all
from fedjax_pfl.reproduction.jobs import reproduce_figure, reproduce_table
from fedjax_pfl.reproduction.plan import distinct_trainings, group_seeds, plan
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.tables import as_text, write_table
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


def make_cell(metric, *reading, settings=BABU, variant=(), **more):
  cell = small_queue.cell_of(settings, metric, Reading(*reading), **more)
  return cell._replace(published=cell.published._replace(variant=dict(variant)))


BODY = {'finetune.trainable': 'body', 'finetune.learning_rate': 1.0}
OTHERS = {'test_partition': 'independent', 'test_shards_per_client': 10}
FINETUNED = 'personalized_accuracy', 'finetuned'
PART = {'finetune_trainable': 'body'}
INITIAL = make_cell('initial_accuracy', 'initial')
HOTTER = make_cell('initial_accuracy', 'initial', settings=HOT)
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
DIVERGING = (HOTTER, BEST._replace(init_from=HOT), INITIAL)
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
  assert evaluations[0].readings == (Reading('initial'), Reading('finetuned'))
  ordered = distinct_trainings(evaluations)
  names = [one.settings.algorithm for one in ordered]
  assert names.count('fedbabu') == names.count('lg_fedavg') == len(SEEDS)
  for place, one in enumerate(ordered):  # runs come after those they start from
    assert one.init_from is None or one.init_from in ordered[:place]
  assert [len(group) for group in group_seeds(ordered)] == [2, 2]


def test_each_thing_is_done_once_and_all_cells_are_written(finished):
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
  path = write_table(TABLE, results)
  text = as_text(TABLE, compare_all(CELLS, results))
  assert '4 of 5 cells run' in text and '4 of 5 cells run' in path.read_text()
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
  assert merged.merge(finished[0]) == 3
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


def dry_run(cells, results):
  """Log the costs of a table of these cells."""
  table = TABLE._replace(cells=tuple(cells))
  reproduce_table(table, '', (0,), results, {}, dry_run=True)


def test_a_dry_run_lists_cells_and_trains_nothing(
  tmp_path, logged, monkeypatch
):
  """It needs no images: blank ones of the same size are measured."""
  monkeypatch.setattr(forecast, 'SIZES', {'cifar10': (600, 100)})
  away = {**BABU, 'dataset': 'cifar10', 'data_dir': str(tmp_path)}
  cell = make_cell('initial_accuracy', 'initial', settings=away)
  results = Results(tmp_path)
  dry_run([*FEW[:3], cell], results)
  first, second, third, fourth = logged[-2].splitlines()[2:]
  for line in (first, fourth):
    assert ' train ' in line and ' s ' in line and 'MiB' in line
  assert 'with a cell above' in second and 'evaluate' in third
  assert '4 cells, 1 seed' in logged[-1]
  assert not results.runs.exists()


def test_a_training_that_diverges_ends_alone(diverging, logged):
  """Nor is the run that was to begin with it trained; the next cell is."""
  results, calls, (first, again) = diverging
  assert calls.count('train') == 2  # the second command trains nothing
  assert sum('NaN or infinity in rounds' in line for line in first) == 2
  assert sum('diverged before' in line for line in again) == 2
  compared = compare_all(DIVERGING, results)
  assert [one.diverged for one in compared] == [(0,), (0,), ()]
  assert [one.ours is None for one in compared] == [True, True, False]
  path = write_table(TABLE._replace(cells=DIVERGING), results)
  text = path.read_text()
  assert '1 of 3 cells run; 2 diverged' in text
  assert text.count('| diverged | 50.00') == 2
  assert 'Our training diverged with seed 0; the printed number, too' in text
  assert path.with_suffix('.csv').read_text().count(',diverged,') == 2
  dry_run(DIVERGING[:2], results)
  assert all(' diverged ' in line for line in logged[0].splitlines()[2:])
  figure = Figure('fedbabu/fig99', 'A toy', {'hot': HOT}, 'features', {})
  with pytest.raises(BadInput, match='fig99, of which a run diverged'):
    reproduce_figure(figure, '', (0,), results)


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

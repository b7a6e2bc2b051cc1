"""A table from nothing to its files, also when it is stopped on the way."""

import shutil
from functools import partial

import pytest
import small_queue
import small_runs

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction import execute as module
from fedjax_pfl.reproduction import forecast
from fedjax_pfl.reproduction.cells import (
  Cell,
  Figure,
  Published,
  Reading,
  Table,
)
from fedjax_pfl.reproduction.compare import compare_all
from fedjax_pfl.reproduction.comparison_table import (
  as_text,
  write_files,
)
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
from fedjax_pfl.training.build_data import make_data_of
from fedjax_pfl.training.divergence import Diverged
from fedjax_pfl.training.warm_start import (
  model_digest,
)

pytestmark = pytest.mark.usefixtures('quick_compiler')
BABU = small_runs.make_settings(rounds=2)
LG = small_runs.make_settings(
  algorithm='lg_fedavg',
  rounds=2,
  hp={'train_fedavg': False, 'protocol': 'released', 'learning_rate': 0.3},
  eval_every=1,
)
SEEDS = (0, 1)


def silent(text):
  pass


def printed(algorithm, metric, mean=50.0, **variant):
  setting = ('digits', 'tiny', algorithm, 10, 2, 0.3, 1, 'shards')
  return Published('fedbabu', '99', *setting, metric, variant, mean, 9.0)


def make_cell(metric, reading, settings=BABU, **others):
  published = printed(
    settings['algorithm'], metric, **others.pop('variant', {})
  )
  return Cell(published, settings, reading, **others)


CELLS = (
  make_cell('initial_accuracy', Reading('initial')),
  make_cell('personalized_accuracy', Reading('finetuned')),
  make_cell(
    'personalized_accuracy',
    Reading('finetuned'),
    evaluation={'finetune.trainable': 'body', 'finetune.learning_rate': 1.0},
    variant={'finetune_trainable': 'body'},
  ),
  make_cell(
    'id_accuracy_after',
    Reading('finetuned', 'own'),
    evaluation={'test_partition': 'independent', 'test_shards_per_client': 10},
  ),
  make_cell(
    'personalized_accuracy',
    Reading('initial', 'best_finished'),
    LG,
    init_from=BABU,
  ),
)
FEW = CELLS[:-1]
TABLE = Table(
  'fedbabu/99', 'A toy', CELLS, ('finetune_trainable',), ('algorithm', 'metric')
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
  monkeypatch.setattr(module, 'build_experiment', small_queue.build)


@pytest.fixture(scope='module')
def data_of():
  return make_data_of(silent)


@pytest.fixture(scope='module')
def finished(tmp_path_factory, quick_compiler, data_of):
  """Return the results of the first cells, and how often what was called."""
  results = Results(tmp_path_factory.mktemp('results'))
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(module, 'build_experiment', small_queue.build)
    calls = count_calls(patched)
    for _ in range(2):  # the second time there is nothing to do
      module.execute(plan(FEW, (0,), data_of), results, silent)
  return results, calls


def test_every_training_and_evaluation_is_planned_once(data_of):
  evaluations = plan(CELLS, SEEDS, data_of)
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
  assert len({one.name for one in ordered}) == len(ordered)


def test_each_thing_is_done_once(finished, data_of):
  results, calls = finished
  assert calls == {
    'train': 1,
    'evaluate_again': 2,
  }  # own classes, the body alone
  compared = compare_all(FEW, SEEDS, results, data_of)
  assert all(one.ours.seeds == (0,) for one in compared)
  (run,) = results.runs.iterdir()
  result = run_dir.load_result(run)
  assert result['model'] == model_digest(run)
  views = result['views']
  assert compared[0].ours.mean == views['initial']['mean']
  assert compared[1].ours.mean == views['finetuned']['mean']
  assert compared[2].ours.mean != compared[1].ours.mean
  assert compared[3].ours.mean != compared[1].ours.mean


def test_the_files_of_a_table_have_all_its_cells(tmp_path, finished, data_of):
  compared = compare_all(CELLS, SEEDS, finished[0], data_of)
  assert compared[-1].ours is None
  path = write_files(TABLE, compared, tmp_path)
  assert '4 of 5 cells run' in path.read_text()
  lines = path.with_suffix('.csv').read_text().splitlines()
  assert len(lines) == 1 + len(CELLS)
  assert '4 of 5 cells run' in as_text(TABLE, compared)


@pytest.mark.long
def test_a_run_that_begins_with_another(tmp_path, data_of):
  """The model comes first; the best models are read from the checkpoint."""
  results = Results(tmp_path)
  module.execute(plan(CELLS[-1:], (0,), data_of), results, silent)
  (one,) = compare_all(CELLS[-1:], (0,), results, data_of)
  best = run_dir.load_result(next(tmp_path.glob('runs/lg*')))['test_best']
  assert one.ours.mean == best['initial']['finished']['mean']
  assert one.ours.mean != best['initial']['each']['mean']
  assert len(list(results.runs.iterdir())) == 2


def test_a_run_is_found_by_its_content(tmp_path, finished, data_of):
  """A directory of any name counts; another machine's results do, too."""
  evaluations = plan(FEW, (0,), data_of)
  copied = tmp_path / 'runs' / 'another_name'
  shutil.copytree(next(finished[0].runs.iterdir()), copied)
  results, merged = Results(tmp_path), Results(tmp_path / 'merged')
  assert module.run_path(evaluations[0].training, results) == copied
  assert merge(merged, finished[0]) == 3
  for one in (results, merged):
    assert not any(module.is_missing(each, one) for each in evaluations)


def test_a_table_that_is_stopped_ends_the_same(
  tmp_path, finished, data_of, monkeypatch
):
  evaluations = plan(FEW[:3], (0,), data_of)
  stopped = Results(tmp_path)
  with monkeypatch.context() as patched:
    patched.setattr(module, 'evaluate_again', killed)
    with pytest.raises(KeyboardInterrupt):
      module.execute(evaluations, stopped, silent)
  with monkeypatch.context() as patched:
    # It is not trained again.
    patched.setattr(loop, 'train', killed)
    module.execute(evaluations, stopped, silent)
  folders = finished[0], stopped
  ours, theirs = (compare_all(FEW[:3], (0,), one, data_of) for one in folders)
  assert ours == theirs


def test_a_dry_run_lists_cells_and_trains_nothing(
  tmp_path, data_of, monkeypatch
):
  logged, results = listen(monkeypatch), Results(tmp_path)
  list_cells(TABLE, CELLS[:3], (0,), results, data_of)
  first, second, third = logged[-2].splitlines()[2:]
  assert ' train ' in first and ' s ' in first and 'MiB' in first
  assert 'with a cell above' in second
  assert 'evaluate' in third
  assert '3 cells, 1 seed' in logged[-1]
  assert not results.runs.exists()


HOT = small_runs.make_settings(rounds=2, learning_rate=1e30)
DIVERGING = (
  make_cell('initial_accuracy', Reading('initial'), HOT),
  make_cell('personalized_accuracy', Reading('initial', 'best_finished'), LG,
            init_from=HOT),
  FEW[0],
)  # fmt: skip


@pytest.fixture(scope='module')
def diverging(tmp_path_factory, quick_compiler, data_of):
  """Return results, calls and log of a table in which a training diverges."""
  results = Results(tmp_path_factory.mktemp('diverging'))
  evaluations, logs = plan(DIVERGING, (0,), data_of), ([], [])
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(module, 'build_experiment', small_queue.build)
    calls = count_calls(patched)
    for log in logs:  # the same command, and once more
      module.execute(evaluations, results, log.append)
  return results, calls, logs


def compare_diverging(results, data_of):
  return compare_all(
    DIVERGING,
    (0,),
    results,
    data_of,
    lambda training: module.diverged_of(training, results),
  )


def test_a_training_that_diverges_ends_alone(diverging, data_of):
  """Nor is the run that was to begin with it trained; the next cell is."""
  results, calls, (first, again) = diverging
  assert calls['train'] == 2  # the second command trains nothing
  assert sum('NaN or infinity in rounds' in line for line in first) == 2
  assert sum('diverged before' in line for line in again) == 2
  hot, begun, cool = compare_diverging(results, data_of)
  assert hot.ours is begun.ours is None
  assert (hot.diverged, begun.diverged, cool.diverged) == ((0,), (0,), ())
  assert cool.ours.seeds == (0,)


def test_a_table_lists_what_diverged(tmp_path, diverging, data_of, monkeypatch):
  table = TABLE._replace(cells=DIVERGING)
  compared = compare_diverging(diverging[0], data_of)
  text = as_text(table, compared)
  assert '1 of 3 cells run; 2 diverged' in text
  assert sum(' diverged ' in line for line in text.splitlines()[3:5]) == 2
  assert 'Our training diverged with seed 0; the printed number, too' in text
  path = write_files(table, compared, tmp_path)
  assert '| diverged | 50.00' in path.read_text()
  lines = path.with_suffix('.csv').read_text().splitlines()
  assert sum(',diverged,' in line for line in lines) == 2
  logged = listen(monkeypatch)
  list_cells(table, DIVERGING[:2], (0,), diverging[0], data_of)
  assert all(' diverged ' in line for line in logged[0].splitlines()[2:])


def test_a_dry_run_needs_no_images(tmp_path, monkeypatch):
  """Blank ones of the same size are measured."""

  def absent(settings):
    raise AssertionError('read')

  monkeypatch.setattr(forecast, 'SIZES', {'cifar10': (600, 100)})
  logged, results = listen(monkeypatch), Results(tmp_path)
  away = {**BABU, 'dataset': 'cifar10', 'data_dir': str(tmp_path)}
  cell = make_cell('initial_accuracy', Reading('initial'), away)
  list_cells(TABLE, [cell], (0,), results, absent)
  assert ' train ' in logged[-2] and 'MiB' in logged[-2]


def test_a_figure_of_a_run_that_diverged_is_refused(diverging, data_of):
  figure = Figure('fedbabu/fig99', 'A toy', {'hot': HOT}, 'features', {})
  with pytest.raises(BadInput, match='fig99, of which a run diverged'):
    reproduce_figure(figure, '', (0,), diverging[0], data_of)


@pytest.mark.long
def test_other_seeds_go_on_without_one_that_diverged(
  tmp_path, data_of, monkeypatch
):
  """Without the file in its directory, that seed is trained again."""
  results = Results(tmp_path)
  evaluations = plan(FEW[:2], SEEDS, data_of)
  lost = results.runs / evaluations[1].training.name
  train = loop.train

  def train_or_diverge(experiment, workdir, program):
    if workdir == lost and lost not in seen:
      seen.append(lost)
      lost.mkdir(parents=True)
      raise Diverged('NaN or infinity', lost)
    return train(experiment, workdir, program)

  seen = []
  monkeypatch.setattr(loop, 'train', train_or_diverge)
  module.execute(evaluations, results, silent)

  def compared():
    diverged_fn = partial(module.diverged_of, results=results)
    return compare_all(FEW[:2], SEEDS, results, data_of, diverged_fn)

  assert [(one.ours.seeds, one.diverged) for one in compared()] == [
    ((0,), (1,))
  ] * 2
  assert 'diverged with seed 1' in as_text(TABLE, compared())
  (lost / 'diverged.json').unlink()
  lost.rmdir()
  module.execute(evaluations, results, silent)
  assert [one.ours.seeds for one in compared()] == [SEEDS] * 2


def test_numbers_of_the_server_need_eval_global_model(finished, data_of):
  cell = make_cell('global_accuracy', Reading('initial', 'global'))
  with pytest.raises(BadInput, match='eval_global_model'):
    compare_all([cell], (0,), finished[0], data_of)


def count_calls(monkeypatch):
  calls = {}
  for place, name in (
    (loop, 'train'),
    (module, 'evaluate_again'),
  ):
    function = getattr(place, name)

    def counted(*args, name=name, function=function):
      calls[name] = calls.get(name, 0) + 1
      return function(*args)

    monkeypatch.setattr(place, name, counted)
  return calls


def listen(monkeypatch):
  """Return a list that grows by what is logged."""
  logged = []
  monkeypatch.setattr(progress, 'log', logged.append)
  return logged


def killed(*args):
  raise KeyboardInterrupt

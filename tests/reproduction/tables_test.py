"""Every printed number is a cell, with a run that can be made and read.

That it is a plain run of a config: quoted_numbers_test.py.

Nothing is compiled; methods are traced on tiny shapes.
"""

import json
import re
from pathlib import Path

import jax
import pytest
from helpers import SHAPE, make_task

from configs.tables import common, fedbabu_appendix
from fedjax_pfl.analysis.analyse import QUESTIONS, Options
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import make_task as make_model
from fedjax_pfl.reproduction import published
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import OF_SERVER, Table, field, replaced
from fedjax_pfl.reproduction.plan import distinct_trainings, plan
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build

ROOT = Path(__file__).parents[2]
ALL = {name: common.load_table(name) for name in common.available()}
TABLES = {name: item for name, item in ALL.items() if isinstance(item, Table)}
FIGURES = {name: item for name, item in ALL.items() if name not in TABLES}
OF_ALL_ROUNDS = 'best_round', 'best_finished', 'global_last10'
CELLS = [cell for table in TABLES.values() for cell in table.cells]

every_table = pytest.mark.parametrize('name', TABLES)


def identify(*parts):
  """Return what is equal for equal settings."""
  return json.dumps(parts, sort_keys=True)


def trainings(*numbers):
  """Return the distinct trainings of tables of the FedBABU paper."""
  return {
    identify(cell.settings, cell.init_from)
    for number in numbers
    for cell in TABLES[f'fedbabu/{number}'].cells
  }


def parse(config, init_from=None):
  """Return settings; those of a run that starts from another name one."""
  return parse_config({**config, **({'init_from': 'RUN'} if init_from else {})})


def test_every_printed_number_is_a_cell_once():
  cells = sorted((cell.published for cell in CELLS), key=str)
  assert cells == sorted(published.load(), key=str)
  for table in TABLES.values():  # row and column name one cell
    places = {
      tuple(field(cell.published, name) for name in table.key_fields)
      for cell in table.cells
    }
    assert len(places) == len(table.cells), table.name


def test_tables_and_figures_have_their_names_in_the_order_of_the_papers():
  assert [item.name for item in ALL.values()] == [*ALL]
  names = [name.split('/') for name in ALL]
  places = [
    (paper, n.startswith('fig'), int(re.sub(r'\D', '', n)), n)
    for paper, n in names
  ]
  assert places == sorted(places)
  numbers = {re.sub(r'\D', '', name) for name in FIGURES}
  assert numbers == {str(n) for n in (*range(2, 14), 15, 16)}
  for figure in FIGURES.values():
    assert figure.what in (*QUESTIONS, 'partition')
    Options(**figure.options)


def test_settings_hold_to_the_rules():
  runs = [
    (run, None) for figure in FIGURES.values() for run in figure.runs.values()
  ]
  for cell in CELLS:
    evaluated = replaced(cell.settings, cell.evaluation)
    runs += [(cell.settings, cell.init_from), (evaluated, cell.init_from)]
    if cell.init_from:
      runs.append((cell.init_from, None))
  for run in {identify(*run): run for run in runs}.values():
    settings = parse(*run)
    assert settings.seed == 0 and not settings.system.quick


def test_cells_share_trainings():
  assert len(trainings(5)) == 129
  assert trainings(1, 3, 4, 5, 6, 20) == trainings(5)
  assert len(trainings(13)) == 129
  assert trainings(12) < trainings(13)
  assert trainings(14) == trainings(15)
  blocks = trainings(14) - trainings(13)
  assert len(blocks) == 2 * 18  # Conv1 and Conv12; Conv123 is FedAvg's
  for number, own in ((2, 12), (10, 18), (21, 6), (23, 6), (24, 9)):
    assert len(trainings(number) - trainings(5)) == own, number
  mixing = TABLES['superfed/1'].cells + TABLES['superfed/3'].cells
  assert len({identify(cell.settings) for cell in mixing}) == 10 + 20 - 2


def test_the_page_has_the_number_of_trainings():
  """By their keys; a run of no rounds evaluates the model of another."""
  runs = distinct_trainings(plan(CELLS, (0,)))
  trained = sum(run.settings.num_rounds > 0 for run in runs)
  text = ' '.join((ROOT / 'docs/reproduction.md').read_text().split())
  assert (
    f'{len(CELLS):,} published numbers. {trained} trainings and '
    f'{len(runs) - trained} runs that only evaluate (Table 9) answer all of '
    'them for one seed'
  ) in text


def test_table_3_of_fedconcat_begins_and_decays_as_its_code():
  """FedBABU's ResNet50 begins otherwise: PyTorch's default."""
  cells = TABLES['fedconcat/3'].cells
  assert {cell.settings['model'] for cell in cells} == {'resnet50_he'}
  models = {cell.settings['model'] for cell in TABLES['fedbabu/17'].cells}
  assert models == {'resnet50'}
  decays = {
    (cell.published.dataset, cell.published.partition): (
      cell.settings['weight_decay']
    )
    for cell in cells
  }
  shares = dict.fromkeys(('classes_2', 'classes_3'), 1e-3)
  shares |= {'': 1e-5, 'dirichlet_0.1': 2e-3}  # '': centralised
  assert len(cells) == 58 and decays == {
    **{('cifar100', name): value for name, value in shares.items()},
    **{('tiny_imagenet', name): value for name, value in shares.items()},
    ('cifar100', 'dirichlet_0.5'): 5e-3,
    ('tiny_imagenet', 'dirichlet_0.5'): 2e-3,
  }


def test_trainings_of_public_codes():
  """Where the printed number is that of a code, and not of the paper."""
  protocols = {'lg_fedavg', 'fedper', 'fedrep', 'ditto'}
  own = [cell for cell in CELLS if cell.published.algorithm in protocols]
  assert {cell.published.algorithm for cell in own} == protocols
  assert {cell.settings['hp']['protocol'] for cell in own} == {'released'}
  cells = [c for c in CELLS if c.settings['algorithm'] == 'superfed']
  assert len(cells) == 2 * (2 + 2 + 2 + 2) + 40
  for hp in (parse(cell.settings).hp for cell in cells):
    assert (hp['protocol'], hp['local_init']) == ('first_code', 'shared')
    assert (hp.get('mu', 0.01), hp.get('nu', 2.0)) == (0.01, 2.0)


def test_as_many_epochs_of_fine_tuning_as_printed():
  for cell in CELLS:
    printed = field(cell.published, 'finetune_epochs')
    if printed is not None:
      settings = replaced(cell.settings, cell.evaluation)
      name, _, epochs = cell.reading.view.partition('_')
      last = settings['finetune']['epochs'][-1] if name == 'finetuned' else 0
      assert int(epochs or last) == int(printed)


def kinds():
  """Return the cells of every way to read a method, the methods apart."""
  cells = {
    identify(
      cell.settings['algorithm'],
      cell.settings['hp'].get('protocol'),
      cell.settings['server_trainable'],
      cell.settings['finetune'] | {**cell.evaluation},
      cell.reading,
    ): cell
    for cell in CELLS
    if '+' not in cell.settings['hp'].get('trainable', '')
  }
  programs = {}
  for cell in cells.values():
    settings = replaced(cell.settings, cell.evaluation)
    program = [settings[name] for name in ('algorithm', 'hp', 'finetune')]
    programs.setdefault(identify(program), []).append(cell)
  return programs.values()


@pytest.mark.parametrize(
  'cells', kinds(), ids=lambda cells: cells[0].settings['algorithm']
)
def test_what_is_read_is_there(cells):
  names, stage = trace(cells[0])
  for cell in cells:
    check_reading(cell, names, stage)


def trace(cell):
  """Return a method's views and its last stage; on shapes."""
  settings = replaced(cell.settings, cell.evaluation)
  stages = build.build_stages(parse(settings, cell.init_from), make_task())
  shapes = ((2, *SHAPE), 'uint8'), ((2,), 'int32'), ((2, 1), 'int32')
  shapes += (((2,), 'int32'),)
  data = ClientData(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))
  *_, (last, *states) = stage_shapes(stages, data)
  return evaluate.view_names(last.algorithm, *states, data), last


def check_reading(cell, names, stage):
  """Assert that a run of the cell holds what is read."""
  settings, (view, measure) = cell.settings, cell.reading
  assert view in names, cell.published
  evaluate.check_views((*settings['views'], *settings['eval_views']), names)
  if measure in OF_SERVER:
    assert settings['eval_global_model'] and stage.algorithm.global_model
  if measure in OF_ALL_ROUNDS:
    assert settings['eval_every'] == 1 and view in settings['eval_views']
  kept = stage.keep_best.view if stage.keep_best else None
  assert kept == (view if measure == 'best_finished' else None)


@pytest.mark.parametrize('part', fedbabu_appendix.LAYERS.values())
def test_layers_are_those_of_the_4convnet(part):
  task = make_model('convnet4', image_shape=(16, 16, 3), num_classes=10)
  assert any(jax.tree.leaves(part_mask(task, part)))


@every_table
def test_a_table_says_which_cells_to_begin_with(name):
  chosen = filter_cells(TABLES[name].cells, TABLES[name].where)
  assert 0 < len(chosen) < len(TABLES[name].cells)


def test_no_such_table():
  with pytest.raises(BadInput, match='did you mean fedbabu/13') as error:
    common.load_table('fedbabu/133')
  assert "got 'fedbabu/133'" in str(error.value)
  assert 'superfed/3' in str(error.value)

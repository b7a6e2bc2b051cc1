"""Every printed number is a cell, with a run that can be made and read.

That it is a plain run of a config: quoted_numbers_test.py.

Nothing is compiled; methods are traced on tiny shapes.
"""

import json

import jax
from helpers import SHAPE, make_task
from pages import ROOT
from printed import load_cells, load_table

from configs import pfllib
from configs.tables import common
from experiments.reproduction import published
from experiments.reproduction.cells import OF_SERVER, field, replaced
from experiments.reproduction.plan import distinct_trainings, plan
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.models.registry import outline
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import build_method

OF_ALL_ROUNDS = 'best_round', 'best_finished', 'best_pooled', 'global_last10'


def identify(*parts):
  """Return what is equal for equal settings."""
  return json.dumps(parts, sort_keys=True)


def parse(config, init_from=None):
  """Return settings; those of a run that starts from another name one."""
  return parse_config({**config, **({'init_from': 'RUN'} if init_from else {})})


def test_every_printed_number_is_a_cell_once():
  cells = [
    one.published for one in load_cells() if one.published.mean is not None
  ]
  there = [
    one
    for one in published.load()
    if one.paper != 'pfllib' or one.algorithm in pfllib.METHODS
  ]
  assert sorted(cells, key=str) == sorted(there, key=str)
  for table in map(
    load_table, common.available()
  ):  # row and column name one cell
    places = {
      tuple(field(cell.published, name) for name in table.key_fields)
      for cell in table.cells
    }
    assert len(places) == len(table.cells), table.name


def test_the_page_has_the_number_of_trainings():
  """By their keys; a run of no rounds evaluates the model of another."""
  cells = [cell for cell in load_cells() if cell.published.mean is not None]
  runs, number = distinct_trainings(plan(cells, (0,))), len(cells)
  trained = sum(run.settings.num_rounds > 0 for run in runs)
  text = ' '.join((ROOT / 'docs/reproduction.md').read_text().split())
  assert (
    f'{number:,} published numbers. For one seed, {trained} trainings and '
    f'{len(runs) - trained} runs that only evaluate (Table 9, pooled) answer '
    'all of them'
  ) in text


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
    for cell in load_cells()
    if '+' not in cell.settings['hp'].get('trainable', '')
  }
  programs = {}
  for cell in cells.values():
    settings = replaced(cell.settings, cell.evaluation)
    program = [settings[name] for name in ('algorithm', 'hp', 'finetune')]
    programs.setdefault(identify(program), []).append(cell)
  return programs.values()


def test_what_is_read_is_there():
  for cells in kinds():
    names, stage = trace(cells[0])
    for cell in cells:
      check_reading(cell, names, stage)


def trace(cell):
  """Return a method's views and its last stage; on shapes."""
  settings = replaced(cell.settings, cell.evaluation)
  parsed = parse(settings, cell.init_from)
  stages = build_method.build_stages(parsed, outline(make_task()))
  shapes = ((2, *SHAPE), 'uint8'), ((2,), 'int32'), ((2, 1), 'int32')
  shapes += (((2,), 'int32'),)
  data = ClientData(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))
  *_, (last, *states) = stage_shapes(stages, data)
  return evaluate.view_names(last.algorithm, *states, data), last


def check_reading(cell, names, stage):
  """Assert that a run of the cell holds what is read."""
  settings, (view, measure, _) = cell.settings, cell.reading
  assert view in names, cell.published
  evaluate.check_views((*settings['views'], *settings['eval_views']), names)
  if measure in OF_SERVER:
    assert settings['eval_global_model'] and stage.algorithm.global_model
  if measure in OF_ALL_ROUNDS:
    assert settings['eval_every'] == 1 and view in settings['eval_views']
  kept = 'initial' if stage.keep_best else None
  assert kept == (view if measure == 'best_finished' else None)

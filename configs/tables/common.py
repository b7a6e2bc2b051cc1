"""Tables of papers by name, and the config that answers a number.

A module holds the TABLES of one paper by their numbers. A table states
which fields of a config its variants stand for; all else comes from the config
of the method, in which the printed fields (shards per client, client fraction,
local epochs) are replaced. So a plain run of that config with these fields on
the command line is the training of the cell.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from configs import common
from experiments.reproduction.cells import Cell, Published, Reading, Table
from experiments.reproduction.published import load as published
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.settings import Settings, parse_config

MODULES = 'fedbabu', 'fedbabu_appendix', 'fedconcat', 'flamby', 'pfllib'
MODULES += ('superfed',)
READINGS = {
  'initial_accuracy': Reading('initial'),
  # By Euclidean distance, as the public code; the paper writes of cosine.
  'initial_accuracy_without_head': Reading('templates_euclidean'),
  'id_accuracy_before': Reading('initial', 'own'),
  'id_accuracy_after': Reading('finetuned', 'own'),
  'ood_accuracy_before': Reading('initial', 'other'),
  'ood_accuracy_after': Reading('finetuned', 'other'),
  'global_accuracy': Reading('initial', 'global'),
  'top5_global_accuracy': Reading('initial', 'global_top5'),
}


def available() -> tuple[str, ...]:
  """Return the names of all tables: fedbabu/1, .. superfed/3."""
  return tuple(functions())


def load_table(name: str) -> Table:
  """Return a table by its name.

  >>> load_table('fedbabu/13').rows
  ('shards_per_client', 'client_fraction', 'local_epochs')
  """
  cause = 'a table that holds no results'
  one_of(available(), 'PAPER/NUMBER of a table', cause).check('table', name)
  return functions()[name]()


def load_cells() -> list[Cell]:
  """Return the cells of all tables."""
  return [cell for name in available() for cell in load_table(name).cells]


@functools.cache
def functions() -> dict[str, Callable[[], Table]]:
  """Return the function of each table by name, in order."""
  found = {}
  for stem in MODULES:
    paper = stem.partition('_')[0]
    module = importlib.import_module(f'configs.tables.{stem}')
    for number, load in module.TABLES.items():
      found[f'{paper}/{number}'] = functools.partial(load, paper, number)
  return found


@functools.cache
def load_config(name: str) -> dict[str, Any]:
  """Return the settings of a config; callers change copies of it."""
  return common.load(name).to_dict()


def load_configs() -> dict[str, Settings]:
  """Return the settings of every config by its name."""
  return {name: parse_config(load_config(name)) for name in common.available()}


def table(
  title: str, axes: str, cell: Callable[[Published], Cell]
) -> Callable[[str, str], Table]:
  """Return the function of a table of a paper and a number.

  `axes` are the fields of its rows, a bar, and those of its columns. Its cells
  are all that is printed there, in that order, each made by `cell`.
  """

  def load(paper, number):
    printed = (x for x in published() if (x.paper, x.table) == (paper, number))
    fields = (tuple(axis.split()) for axis in axes.split('|'))
    return Table(f'{paper}/{number}', title, tuple(map(cell, printed)), *fields)

  return load

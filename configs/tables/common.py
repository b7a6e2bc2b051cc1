"""From a printed number to the run that answers it: what all tables share.

A table file says which fields of a config its variants stand for; the rest
follows from the printed cell, by the config file of its method. So a plain run
of that config, with the cell's shards, fraction and epochs, is the training
that the cell wants.
"""

import copy
import functools
import importlib
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction.cells import (
  Cell,
  Figure,
  Published,
  Reading,
  Table,
  replaced,
)
from fedjax_pfl.reproduction.published import load

FOLDER = pathlib.Path(__file__).parent
NAME = re.compile(r'(fedbabu|fedconcat|superfed)_(\d+|fig\d+[ab]?)')
SETTING = (
  'model',
  'num_clients',
  'shards_per_client',
  'client_fraction',
  'local_epochs',
)
EMNIST = {
  'dataset': 'emnist/byclass',
  'aggregation': 'examples',  # n_i / n, as the paper writes; its code is 1 / m
}


class Method(NamedTuple):
  """What made the printed numbers of a method in the FedBABU paper."""

  config: str  # METHOD of configs/METHOD_cifar10.py
  changes: Mapping[str, Any] = {}
  personalized: Reading = Reading('finetuned')
  after: str = ''  # begins with the model of this method's run


RELEASED = {'hp.protocol': 'released'}  # the public code; see its file
METHODS = {
  'fedavg': Method('fedavg'),
  'fedbabu': Method('fedbabu'),
  'fedper': Method('fedper', RELEASED),
  'lg_fedavg': Method(
    'lg_fedavg',
    {'hp.train_fedavg': False},
    Reading('initial', 'best_round'),  # not fine-tuned
    after='fedavg',
  ),
  'fedrep': Method('fedrep', RELEASED),
  'per_fedavg': Method('per_fedavg', {}, Reading('adapted')),
  'ditto': Method('ditto', RELEASED, Reading('personal')),
  'local_only': Method('local_only', {}, Reading('personal', 'best_round')),
  'fedprox': Method('fedprox'),  # with mu = 0.01, which is its default
  'fedprox_babu': Method('fedprox', {'hp.trainable': 'body'}),
  'partial_update': Method('fedbabu'),  # of which layers: a variant
}
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
  """Return the names of all tables and figures: fedbabu/1, .. superfed/3."""
  stems = sorted(file.stem for file in FOLDER.glob('*.py'))
  names = [stem.replace('_', '/') for stem in stems if NAME.fullmatch(stem)]
  return tuple(sorted(names, key=_place))


def load_table(name: str) -> Table | Figure:
  """Return a table or a figure by its name.

  >>> load_table('fedbabu/13').rows
  ('shards_per_client', 'client_fraction', 'local_epochs')
  """
  if name not in available():
    raise bad_input(
      'table',
      got=name,
      expected='PAPER/NUMBER of a table or a figure',
      choices=available(),
      cause='a typing error, or a table that holds no results',
    )
  module = importlib.import_module(f'configs.tables.{name.replace("/", "_")}')
  return module.get_table()


def load_config(name: str) -> dict[str, Any]:
  """Return the settings of configs/NAME.py, for the caller to change."""
  return copy.deepcopy(_load_config(name))


def load_configs() -> dict[str, dict[str, Any]]:
  """Return the settings of every configs/NAME.py by its name."""
  names = sorted(file.stem for file in FOLDER.parent.glob('*_*.py'))
  return {name: load_config(name) for name in names}


def table(
  name: str,
  title: str,
  rows: tuple[str, ...],
  columns: tuple[str, ...],
  cell: Callable[[Published], Cell] | None = None,
) -> Table:
  """Return a table: `cell` of all that is printed there, in that order."""
  paper, number = name.split('/')
  printed = [one for one in load() if (one.paper, one.table) == (paper, number)]
  cells = tuple(map(cell or fedbabu_cell, printed))
  return Table(name, title, cells, rows, columns)


def fedbabu_cell(
  published: Published,
  changes: Mapping[str, Any] | None = None,
  evaluation: Mapping[str, Any] | None = None,
) -> Cell:
  """Return the cell of a number in the FedBABU paper.

  `changes` are fields of its training that the method and the setting leave
  open, `evaluation` those of evaluation alone.
  """
  method = METHODS[published.algorithm]
  own = {**_setting(published), **(changes or {})}
  settings = replaced(
    fedbabu_config(method.config, published.dataset), {**method.changes, **own}
  )
  start = None
  if method.after:
    before = fedbabu_config(METHODS[method.after].config, published.dataset)
    start = replaced(before, own)
  reading = READINGS.get(published.metric, method.personalized)
  return Cell(published, settings, reading, evaluation or {}, start)


def fedbabu_config(method: str, dataset: str) -> dict[str, Any]:
  """Return the config of a method in the FedBABU paper on an image set."""
  if dataset != 'emnist':
    return load_config(f'{method}_{dataset}')
  return replaced(load_config(f'{method}_cifar100'), EMNIST)


def _setting(published: Published) -> dict[str, Any]:
  """Return what is printed beside a number; Local-only has no f, no tau."""
  fields = {name: getattr(published, name) for name in SETTING}
  return {name: value for name, value in fields.items() if value is not None}


@functools.cache
def _load_config(name: str) -> dict[str, Any]:
  return importlib.import_module(f'configs.{name}').get_config().to_dict()


def _place(name: str) -> tuple:
  paper, number = name.split('/')
  digits = int(re.sub(r'\D', '', number))
  return paper, number.startswith('fig'), digits, number

"""A published table as a grid: which run answers which printed number.

Files in configs/tables/ fill these records; nothing here trains.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

# What is read off an evaluated view. The first three are a number for each
# client, the others one number of the server's model on the whole test set.
MEASURES = (
  'accuracy',  # on the client's tests
  'own',  # on those of its tests whose class it trains on
  'other',  # on the rest of them
  'best_round',  # the client's best evaluated round by TEST accuracy
  'global',  # accuracy after the last round
  'global_last10',  # mean of the last ten evaluated rounds
  'global_top5',
)


class Published(NamedTuple):
  """One printed number, as in published.csv; None: not stated, or not used."""

  paper: str
  table: str
  dataset: str
  model: str
  algorithm: str
  num_clients: int | None
  shards_per_client: int | None
  client_fraction: float | None
  local_epochs: int | None
  partition: str
  metric: str
  variant: Mapping[str, str]  # {'finetune_epochs': '5'}
  mean: float
  std: float | None


class Reading(NamedTuple):
  """Where the number stands in what was evaluated."""

  view: str
  measure: str = 'accuracy'


class Cell(NamedTuple):
  """A printed number, and what has to be run for ours."""

  published: Published
  settings: dict[str, Any]  # a whole config: what is trained
  reading: Reading
  # Fields replaced for evaluation alone: {'finetune.trainable': 'body'}. Cells
  # that differ in nothing else share one training.
  evaluation: Mapping[str, Any] = {}
  start: dict[str, Any] | None = None  # a whole config: the run it begins with


class Table(NamedTuple):
  """A table of a paper; rows and columns are named by fields of its cells.

  A field is one of `Published`, or the name of a variant.
  """

  name: str  # 'fedbabu/13'
  title: str
  cells: tuple[Cell, ...]
  rows: tuple[str, ...]
  columns: tuple[str, ...]


class Figure(NamedTuple):
  """A figure of a paper: runs, and the question that draws them."""

  name: str  # 'fedbabu/fig12'
  title: str
  runs: Mapping[str, dict[str, Any]]  # label -> a whole config
  what: str  # as experiments/analyse.py has it, or 'partition'
  options: Mapping[str, Any]  # fields of its Options


def field(published: Published, name: str) -> Any:
  """Return a field of a cell, or the value of a variant; None if absent."""
  if name in Published._fields:
    return getattr(published, name)
  return published.variant.get(name)


def replaced(
  settings: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
  """Return the settings with fields replaced; a dot leads into a group.

  >>> replaced(settings, {'finetune.trainable': 'body', 'shards_per_client': 5})

  A hyperparameter, hp.<name>, may be new: a method checks its own.
  """
  changed = copy.deepcopy(dict(settings))
  for name, value in fields.items():
    *group, field = name.split('.')
    place = changed[group[0]] if group else changed
    assert field in place or group == ['hp'], f'no field {name}'
    place[field] = value
  return changed

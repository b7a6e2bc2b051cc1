"""Records of published tables: each number, and the run that reproduces it.

Files in configs/tables/ make these records.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

# Numbers of an evaluated view: one for each client, or, from 'global' on, one
# of the server's model on the whole test set, or of all clients.
MEASURES = (
  'accuracy',  # on the client's tests
  'own',  # on its tests of classes in its training data
  'other',  # on the rest of them
  'best_round',  # the client's best evaluated round by TEST accuracy
  'best_finished',  # that model of it, finished: `Stage.keep_best`
  'global',  # accuracy after the last round
  'global_last10',  # mean of the last ten evaluated rounds
  'global_top5',
  'pooled',  # on the tests of all clients together
  'best_pooled',  # the best evaluated round by that TEST accuracy
)
OF_CLASSES = ('own', 'other')
OF_BEST_ROUND = ('best_round', 'best_finished')
OF_ALL_TESTS = ('pooled', 'best_pooled')
OF_SERVER = ('global', 'global_last10', 'global_top5')


class Published(NamedTuple):
  """One published number, as in published.csv; None: not stated or not used.

  One that ours stands beside without print has no mean.
  """

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
  mean: float | None
  std: float | None


class Reading(NamedTuple):
  """A view and a measure: the number to read from an evaluation."""

  view: str
  measure: str = 'accuracy'

  @property
  def stored_name(self) -> str:
    """Return the name under which its scores are stored: 'initial:own'."""
    if self.measure in ('accuracy', *OF_ALL_TESTS):
      return self.view
    return f'{self.view}:{self.measure}'


class Cell(NamedTuple):
  """A published number, and the run that gives ours."""

  published: Published
  settings: dict[str, Any]  # a config: what is trained
  reading: Reading
  # Fields replaced for evaluation alone: {'finetune.trainable': 'body'}. Cells
  # that differ only in these share one training.
  evaluation: Mapping[str, Any] = {}
  init_from: dict[str, Any] | None = None  # config of the run it starts from


class Table(NamedTuple):
  """A table of a paper; rows and columns are named by fields of its cells.

  A field is one of `Published`, or the name of a variant.
  """

  name: str  # 'fedbabu/13'
  title: str
  cells: tuple[Cell, ...]
  rows: tuple[str, ...]
  columns: tuple[str, ...]

  @property
  def key_fields(self) -> tuple[str, ...]:
    """Return the fields that identify a cell."""
    return (*self.rows, *self.columns)


def field(published: Published, name: str) -> Any:
  """Return a field of a cell, or the value of a variant; None if absent."""
  if name in Published._fields:
    return getattr(published, name)
  return published.variant.get(name)


def replaced(
  config: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
  """Return a config with fields replaced; a dot separates group and field.

  >>> replaced(config, {'finetune.trainable': 'body', 'shards_per_client': 5})

  A hyperparameter, hp.<name>, may be new: the method checks it.
  """
  changed = copy.deepcopy(dict(config))
  for name, value in fields.items():
    *group, field = name.split('.')
    place = changed[group[0]] if group else changed
    assert field in place or group == ['hp'], f'no field {name}'
    place[field] = value
  return changed

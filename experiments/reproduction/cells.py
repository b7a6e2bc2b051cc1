"""Records of published tables: each number, the run of it, a choice of them.

Files in configs/tables/ make these records.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input

# Measures of an evaluated view. One number for each client: its 'accuracy',
# that on its tests of classes in its training data or on the rest of them,
OF_CLASSES = ('own', 'other')
# or that of its best evaluated round by TEST accuracy, as it was or finished
# (`Stage.keep_best`).
OF_BEST_ROUND = ('best_round', 'best_finished')
# One number: on the tests of all clients together, after the last round or of
# the best evaluated round by that TEST accuracy,
OF_ALL_TESTS = ('pooled', 'best_pooled')
# or of the server's model on the whole test set, after the last round or as the
# mean of the last ten evaluated rounds.
OF_SERVER = ('global', 'global_last10', 'global_top5')

# Fields that a filter may name, besides the variants of the table.
FIELDS = (
  *('algorithm', 'dataset', 'model', 'num_clients', 'shards_per_client'),
  *('client_fraction', 'local_epochs', 'partition', 'metric'),
)


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
  # By name: the number of this client; '': the mean of all who are evaluated.
  client: str | None = None

  @property
  def stored_name(self) -> str:
    """Return the name under which its scores are stored: 'initial:own'.

    Numbers of the server's model are stored with its view.
    """
    of_view = 'accuracy', *OF_ALL_TESTS, *OF_SERVER
    if self.client is not None or self.measure in of_view:
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
  config: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
  """Return a config with fields replaced; a dot separates group and field.

  A hyperparameter, hp.<name>, may be new: the method checks it.
  """
  changed = copy.deepcopy(dict(config))
  for name, value in changes.items():
    *group, field = name.split('.')
    fields = changed[group[0]] if group else changed
    assert field in fields or group == ['hp'], f'no field {name}'
    fields[field] = value
  return changed


# ---- A choice of cells by their fields: shards_per_client=10 -----------------


def filter_cells(cells: Sequence[Cell], text: str) -> tuple[Cell, ...]:
  """Return the cells whose fields have these values; all, without a text.

  >>> filter_cells(table.cells, 'shards_per_client=10,client_fraction=0.1')

  A cell without a value, such as the fraction of Local-only, matches any value
  of it: it belongs to every row of its table.
  """
  chosen = tuple(cells)
  for pair in text.split(',') if text else ():
    name, equals, value = (part.strip() for part in pair.partition('='))
    if not (name and equals and value):
      raise bad_input(
        '--where',
        got=text,
        expected='fields and their values',
        choices=['shards_per_client=10,client_fraction=0.1'],
        cause='no =, or a comma too many',
      )
    known = values_of(cells)
    if name not in known:
      expected = 'a field of the cells of this table'
      fields = [f'{x}={" or ".join(map(str, known[x]))}' for x in known]
      raise bad_input('--where', got=name, expected=expected, choices=fields)
    matching = tuple(cell for cell in chosen if _matches(cell, name, value))
    if name not in values_of(matching):
      raise bad_input(
        '--where',
        got=f'{name}={value}',
        expected=f'a value of {name} that such cells of the table have',
        choices=values_of(chosen).get(name, []),
      )
    chosen = matching
  return chosen


def values_of(cells: Sequence[Cell]) -> dict[str, list[Any]]:
  """Return the values of each field, in the order of the table."""
  variants = (name for cell in cells for name in cell.published.variant)
  values_by_name = {}
  for name in dict.fromkeys((*FIELDS, *variants)):
    values = dict.fromkeys(field(cell.published, name) for cell in cells)
    if known := [value for value in values if value not in (None, '')]:
      values_by_name[name] = known
  return values_by_name


def _matches(cell: Cell, name: str, wanted: str) -> bool:
  """Return whether a field has this value; numbers are compared: 1.0 is 1."""
  value = field(cell.published, name)
  if value is None:  # a setting that the cell lacks; a variant is not one
    return name in FIELDS
  try:
    return float(value) == float(wanted)
  except ValueError:
    return str(value) == wanted

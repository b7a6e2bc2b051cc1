"""The content of clients.npz: the scores of every client, as named arrays.

ids, train_count             [K]
names, class_names           [K], [Y]; where the data have names
train_classes, test_classes  [K, Y]; may be absent
VIEW/FIELD                   [K], of Scores and of the user's own metrics
validation_FIELD             [K], of the same; may be absent
unseen/...                   the same of clients who came after training
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores

# Fields of Scores that every view has; the others may be None.
ALWAYS_SCORED = ('correct', 'count')
CLASSES = ('train_classes', 'test_classes')
NAMES = ('names', 'class_names')
VALIDATION = 'validation_'  # begins the names of these scores
UNSEEN = 'unseen/'  # arrays of clients who came after training; no view's name


class Clients(NamedTuple):
  """The content of clients.npz."""

  ids: np.ndarray  # [K]
  train_count: np.ndarray  # [K]
  scores: dict[str, Scores]  # by view, in the order of writing; fields [K]
  # Examples of every class; None where only an evaluation was stored.
  train_classes: np.ndarray | None = None  # [K, Y]
  test_classes: np.ndarray | None = None  # [K, Y]
  unseen: 'Clients | None' = None  # those who came after training
  # Of the result's models, on the examples kept for choosing; None without.
  validation: Scores | None = None
  # Of clients and classes; None where the data have no names.
  names: np.ndarray | None = None  # [K]
  class_names: np.ndarray | None = None  # [Y]

  @property
  def labels(self) -> list[str]:
    """Return what clients are called: by their names, or else their ids."""
    return [*map(str, self.ids if self.names is None else self.names)]


def as_arrays(clients: Clients) -> dict[str, np.ndarray]:
  """Return the arrays of all clients by their names in clients.npz."""
  named = {'ids': clients.ids, 'train_count': clients.train_count}
  named |= {name: getattr(clients, name) for name in (*CLASSES, *NAMES)}
  for view, score in clients.scores.items():
    named |= fields_of(score, f'{view}/')
  if clients.validation is not None:
    named |= fields_of(clients.validation, VALIDATION)
  arrays = {}
  for name, array in named.items():
    if array is not None:
      array = np.asarray(array, np.int32 if name in CLASSES else None)
      assert array.ndim == 1 + (name in CLASSES), (name, array.shape)
      assert name == 'class_names' or len(array) == len(clients.ids), (
        name,
        array.shape,
      )
      arrays[name] = array
  if clients.unseen is not None:
    unseen = as_arrays(clients.unseen)
    arrays |= {f'{UNSEEN}{name}': array for name, array in unseen.items()}
  return arrays


def fields_of(scores: Scores, prefix: str) -> dict[str, np.ndarray | None]:
  """Return the arrays of a view by name, the user's metrics among them."""
  fields = scores._replace(own=None)._asdict() | (scores.own or {})
  return {f'{prefix}{field}': array for field, array in fields.items()}


def take(clients: Clients, rows: np.ndarray, path: Path) -> Clients:
  """Return some of the clients; those who came after training stay."""
  arrays = as_arrays(clients._replace(unseen=None))
  arrays = {
    name: x if name == 'class_names' else x[rows] for name, x in arrays.items()
  }
  return from_arrays(arrays, path)._replace(unseen=clients.unseen)


def from_arrays(named: Mapping[str, np.ndarray], path: Path) -> Clients:
  """Return the clients of these arrays, which the file at `path` holds."""
  arrays, unseen, validation = {}, {}, {}
  by_view: dict[str, dict[str, np.ndarray]] = {}
  for name, array in named.items():
    view, _, field = name.rpartition('/')
    if name.startswith(UNSEEN):
      unseen[name.removeprefix(UNSEEN)] = array
    elif name.startswith(VALIDATION):
      validation[name.removeprefix(VALIDATION)] = array
    elif view:
      by_view.setdefault(view, {})[field] = array
    else:
      arrays[name] = array
  try:
    return Clients(
      arrays['ids'],
      arrays['train_count'],
      {view: scores_of(fields, f'{view}/') for view, fields in by_view.items()},
      *(arrays.get(name) for name in CLASSES),
      from_arrays(unseen, path) if unseen else None,
      scores_of(validation, VALIDATION) if validation else None,
      *(arrays.get(name) for name in NAMES),
    )
  except KeyError as error:
    raise bad_input(
      'clients',
      got=f'{path} without {error}',
      expected='the scores of every client in every view',
      choices=named,
    ) from error


def scores_of(fields: dict[str, np.ndarray], prefix: str) -> Scores:
  """Return the scores of a view; all that is no field of Scores is `own`."""
  for name in ALWAYS_SCORED:
    if name not in fields:
      raise KeyError(prefix + name)
  known = {name: fields.pop(name) for name in Scores._fields if name in fields}
  return Scores(**known, own=fields or None)

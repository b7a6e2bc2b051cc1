"""The content of clients.npz: the scores of every client, as named arrays.

ids, train_count             [K]
train_classes, test_classes  [K, Y]; may be absent
VIEW/FIELD                   [K], of Scores and of the user's own metrics
validation_FIELD             [K]; may be absent
unseen/...                   the same of clients who came after training
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores

# Fields of Scores that every view has; the others may be None.
ALWAYS_SCORED = ('correct', 'count')
VALIDATION = 'validation_'  # begins the names of these scores
UNSEEN = 'unseen/'  # arrays of clients who came after training; no view's name
OWN = 'own'  # the field of the user's metrics, which are stored by their names


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


def as_arrays(clients: Clients) -> dict[str, np.ndarray]:
  """Return the arrays of all clients by their names in clients.npz."""
  arrays = _arrays_of(clients)
  if clients.unseen is not None:
    for name, array in _arrays_of(clients.unseen).items():
      arrays[f'{UNSEEN}{name}'] = array
  return arrays


def from_arrays(named: Mapping[str, np.ndarray], path: pathlib.Path) -> Clients:
  """Return the clients of these arrays, which the file at `path` holds."""
  arrays, unseen = {}, {}
  for name, array in named.items():
    own = name.removeprefix(UNSEEN)
    (arrays if own == name else unseen)[own] = array
  clients = _clients_of(arrays, path)
  if unseen:
    clients = clients._replace(unseen=_clients_of(unseen, path))
  return clients


def _arrays_of(clients: Clients) -> dict[str, np.ndarray]:
  """Return the arrays of these clients, without those who came later."""
  ids, train_count, scores, *counts, _, validation = clients
  arrays = {'ids': np.asarray(ids), 'train_count': np.asarray(train_count)}
  classes = dict(zip(('train_classes', 'test_classes'), counts, strict=True))
  for name, array in classes.items():
    if array is not None:
      arrays[name] = np.asarray(array, np.int32)
  for view, score in scores.items():
    for field, array in {**score._asdict(), **(score.own or {})}.items():
      if array is not None and field != OWN:
        arrays[f'{view}/{field}'] = np.asarray(array)
  if validation is not None:
    for field in ALWAYS_SCORED:
      arrays[VALIDATION + field] = np.asarray(getattr(validation, field))
  for name, array in arrays.items():
    shape = array.shape[:1] if name in classes else array.shape
    assert shape == arrays['ids'].shape, (name, array.shape)
  return arrays


def _clients_of(arrays: dict[str, np.ndarray], path: pathlib.Path) -> Clients:
  """Return the clients of these arrays, without those who came later."""
  views = dict.fromkeys(name.rpartition('/')[0] for name in arrays)
  maybe_scored = [
    name for name in Scores._fields if name not in (*ALWAYS_SCORED, OWN)
  ]
  try:
    scores = {
      view: Scores(
        **{field: arrays[f'{view}/{field}'] for field in ALWAYS_SCORED},
        **{field: arrays.get(f'{view}/{field}') for field in maybe_scored},
        own=_own_metrics(arrays, view),
      )
      for view in views
      if view
    }
    return Clients(
      arrays['ids'],
      arrays['train_count'],
      scores,
      arrays.get('train_classes'),
      arrays.get('test_classes'),
      validation=_validation_in(arrays),
    )
  except KeyError as error:
    raise bad_input(
      'clients',
      got=f'{path} without {error}',
      expected='the scores of every client in every view',
      choices=arrays,
      cause='a file of another program, or damage',
    ) from error


def _validation_in(arrays: Mapping[str, np.ndarray]) -> Scores | None:
  names = [VALIDATION + field for field in ALWAYS_SCORED]
  if names[0] not in arrays:
    return None
  return Scores(*(arrays[name] for name in names))


def _own_metrics(
  arrays: Mapping[str, np.ndarray], view: str
) -> dict[str, np.ndarray] | None:
  """Return the user's metrics of a view: all that is no field of Scores."""
  fields = [name.rpartition('/') for name in arrays]
  own = {
    name: arrays[f'{view}/{name}']
    for known, _, name in fields
    if known == view and name not in Scores._fields
  }
  return own or None

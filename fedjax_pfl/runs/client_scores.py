"""The scores of every client: of the result, and of each evaluation.

  clients.npz
    ids, train_count             [K]
    names, class_names           [K], [Y]; where the data have names
    attackers                    [K]; who attacks; absent without an attack
    train_classes, test_classes  [K, Y]; may be absent
    VIEW/FIELD                   [K], of Scores and of the user's own metrics
    validation_FIELD             [K], of the same; may be absent
    unseen/...                   the same of clients who came after training
  scores/ROUND.npz               of one evaluation; ROUND.start.npz: as a stage
                                 begins
    VIEW/correct, VIEW/count     [K], on the tests
    validation/VIEW/FIELD        [K], on examples for choosing

From scores/ the best rounds are chosen when the run ends
(evaluation/choices.py). A checkpoint has their checksum.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores

# Fields of Scores that every view has; the others may be None.
ALWAYS_SCORED = ('correct', 'count')
CLASSES = ('train_classes', 'test_classes')
MORE = ('names', 'class_names', 'attackers')
OF_RESULT = 'validation_'  # begins the names of these scores
VALIDATION = 'validation/'  # begins the names of views on these examples
FOLDER = 'scores'
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
  attackers: np.ndarray | None = None  # [K] bool

  @property
  def counted(self) -> np.ndarray:
    """Return the training examples [K]; 0 of attackers, who are in no mean."""
    is_bad = self.attackers
    return self.train_count if is_bad is None else self.train_count * ~is_bad

  @property
  def labels(self) -> np.ndarray:
    """Return what clients are called, [K]: their names, or else their ids."""
    return self.ids if self.names is None else self.names


def as_arrays(clients: Clients) -> dict[str, np.ndarray]:
  """Return the arrays of all clients by their names in clients.npz."""
  named = {'ids': clients.ids, 'train_count': clients.train_count}
  named |= {name: getattr(clients, name) for name in (*CLASSES, *MORE)}
  for view, score in clients.scores.items():
    named |= fields_of(score, f'{view}/')
  if clients.validation is not None:
    named |= fields_of(clients.validation, OF_RESULT)
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
  of_views: dict[str, np.ndarray] = {}
  for name, array in named.items():
    if name.startswith(UNSEEN):
      unseen[name.removeprefix(UNSEEN)] = array
    elif name.startswith(OF_RESULT):
      validation[name.removeprefix(OF_RESULT)] = array
    else:
      (of_views if '/' in name else arrays)[name] = array
  try:
    return Clients(
      arrays['ids'],
      arrays['train_count'],
      by_view(of_views),
      *(arrays.get(name) for name in CLASSES),
      from_arrays(unseen, path) if unseen else None,
      scores_of(validation, OF_RESULT) if validation else None,
      *(arrays.get(name) for name in MORE),
    )
  except KeyError as error:
    raise bad_input(
      'clients',
      got=f'{path} without {error}',
      expected='the scores of every client in every view',
      choices=named,
    ) from error


def by_view(arrays: Mapping[str, np.ndarray]) -> dict[str, Scores]:
  """Return {view: scores} of arrays with names VIEW/FIELD."""
  views: dict[str, dict[str, np.ndarray]] = {}
  for name, array in arrays.items():
    view, _, field = name.rpartition('/')
    views.setdefault(view, {})[field] = array
  return {view: scores_of(fields, f'{view}/') for view, fields in views.items()}


def scores_of(fields: dict[str, np.ndarray], prefix: str) -> Scores:
  """Return the scores of a view; all that is no field of Scores is `own`."""
  for name in ALWAYS_SCORED:
    if name not in fields:
      raise KeyError(prefix + name)
  known = {name: fields.pop(name) for name in Scores._fields if name in fields}
  return Scores(**known, own=fields or None)


# ---- scores/ -----------------------------------------------------------------


def name_of(number: int, first: int) -> str:
  """Return the name of an evaluation; `first`: rounds before its stage."""
  return f'{number}.start' if number == first else f'{number}'


def write(folder: Path, name: str, scores: Mapping[str, Scores]) -> None:
  """Write the file of one evaluation, whole or not at all."""
  arrays = {}
  for view, of_view in scores.items():
    fields = fields_of(of_view, f'{view}/')
    known = [f'{view}/correct', f'{view}/count']
    names = fields if view.startswith(VALIDATION) else known
    arrays |= {x: fields[x] for x in names if fields[x] is not None}
  with atomic_files.writing(folder):
    folder.mkdir(exist_ok=True)
    atomic_files.write_npz(folder / f'{name}.npz', arrays, compressed=True)


def correct_of(folder: Path, first: int) -> dict[str, dict[int, np.ndarray]]:
  """Return {view: {round: right answers [K]}} of the stage after `first`."""
  correct = {}
  for number, path in _files(folder):
    if number >= first and path.stem == name_of(number, first):
      for name, array in atomic_files.read_npz(path).items():
        view, _, field = name.rpartition('/')
        if field == 'correct':
          correct.setdefault(view, {})[number] = array
  return correct


def last(run: Path, part: str) -> dict[str, Scores]:
  """Return {view: scores} of the last evaluation, of names that begin so."""
  files = _files(run / FOLDER)
  arrays = atomic_files.read_npz(files[-1][1]) if files else {}
  named = {
    name.removeprefix(part): array
    for name, array in arrays.items()
    if name.startswith(part)
  }
  return by_view(named)


def digest(folder: Path, step: int) -> str:
  """Return the checksum of all evaluations that belong to a checkpoint."""
  content = hashlib.sha256()
  for file in _files(folder):
    if not _is_after(step, *file):
      content.update(f'{file[1].name}:{atomic_files.sha256(file[1])}'.encode())
  return content.hexdigest()


def cut(folder: Path, step: int) -> None:
  """Remove what is later than a checkpoint."""
  for file in _files(folder):
    if _is_after(step, *file):
      file[1].unlink()


def _is_after(step: int, number: int, path: Path) -> bool:
  return number > step or path.stem == name_of(step, step)


def _files(folder: Path) -> list[tuple[int, Path]]:
  """Return the files with their rounds, in order."""
  if not folder.is_dir():
    return []
  files = [(path.stem.partition('.')[0], path) for path in folder.glob('*.npz')]
  return sorted((int(word), path) for word, path in files if word.isdecimal())

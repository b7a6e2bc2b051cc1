"""The records of the database of results: written and read.

A connection is one of results_db.connect.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs.results_db import SCORED, STORED


class Provenance(NamedTuple):
  """Which run gave the numbers, and where; '' and None: not recorded."""

  path: str  # the run directory, on the machine of the run
  version: str
  commit: str
  jax: str
  devices: str
  processor: str
  finished: float | None  # seconds since 1970
  seconds: float | None

  def __str__(self) -> str:
    commit = self.commit[:12] or 'unknown'
    return f'{self.path} (commit {commit}, {self.processor or self.devices})'


class Training(NamedTuple):
  """A training; its keys are made by the room `reproduction`."""

  key: str
  setting: str  # the key without the data
  start: str  # key of the training that it started from, or ''
  model: str  # digest of its final global model, or ''
  settings: dict[str, Any]  # every field
  data: str
  seed: int | None
  rounds: int | None
  images_per_second: float | None  # median
  bytes_down: int | None  # of the whole training
  bytes_up: int | None
  provenance: Provenance


class Evaluation(NamedTuple):
  """An evaluation of the last models of a training."""

  training: str
  evaluation: str
  settings: dict[str, Any]
  data: str
  result: dict[str, Any]  # as result.json
  provenance: Provenance


class Evaluated(NamedTuple):
  """The scores of the clients in one view."""

  ids: np.ndarray  # [K]
  train_count: np.ndarray  # [K]
  scores: Scores  # [K]


def insert(
  connection: sqlite3.Connection, table: str, record: Training | Evaluation
) -> int:
  """Insert a record; return its row id."""
  fields = {**record._asdict(), **record.provenance._asdict()}
  del fields['provenance']
  for name in ('settings', 'result'):
    if name in fields:
      fields[name] = json.dumps(fields[name], sort_keys=True)
  names = ', '.join(f'"{name}"' for name in fields)
  marks = ', '.join('?' * len(fields))
  return connection.execute(
    f'INSERT INTO {table} ({names}) VALUES ({marks})', tuple(fields.values())
  ).lastrowid


def insert_scores(
  connection: sqlite3.Connection,
  evaluation: int,
  view: str,
  evaluated: Evaluated,
) -> None:
  """Insert a row for every client; NaN, and a score that is None, is NULL."""
  absent = np.full(len(evaluated.ids), np.nan)
  columns = [
    absent if values is None else np.asarray(values, np.float64)
    for values in (getattr(evaluated.scores, field) for field in STORED)
  ]
  marks = ', '.join('?' * (4 + len(columns)))
  rows = zip(
    evaluated.ids.tolist(),
    evaluated.train_count.tolist(),
    *(column.tolist() for column in columns),
    strict=True,
  )
  connection.executemany(
    f'INSERT INTO scores VALUES ({marks})',
    ((evaluation, view, *row) for row in rows),
  )


def replace_result(
  connection: sqlite3.Connection, evaluation: int, result: dict[str, Any]
) -> None:
  connection.execute(
    'UPDATE evaluations SET result = ? WHERE id = ?',
    (json.dumps(result, sort_keys=True), evaluation),
  )


def replace_keys(
  connection: sqlite3.Connection,
  trainings: Mapping[str, Training],
  key_fn: Callable[[Evaluation], str],
) -> None:
  """Replace the keys of the trainings {old key: new} and of evaluations.

  key_fn returns the new key of an evaluation.
  """
  evaluations = read_evaluations(connection)
  # In two steps: a new key may equal the old key of another training.
  connection.execute("UPDATE trainings SET key = 'old ' || key")
  connection.execute("UPDATE evaluations SET training = 'old ' || training")
  for old, new in trainings.items():
    connection.execute(
      'UPDATE trainings SET key = ?, setting = ?, start = ? WHERE key = ?',
      (new.key, new.setting, new.start, f'old {old}'),
    )
  for number, evaluation in evaluations.items():
    connection.execute(
      'UPDATE evaluations SET training = ?, evaluation = ? WHERE id = ?',
      (trainings[evaluation.training].key, key_fn(evaluation), number),
    )


def read_trainings(
  connection: sqlite3.Connection, key: str = ''
) -> dict[str, Training]:
  """Return trainings by key: all, or the one with this key."""
  names = [*Training._fields[:-1], *Provenance._fields]
  rows = connection.execute(
    f'SELECT {_quoted(names)} FROM trainings {"WHERE key = ?" if key else ""}',
    (key,) if key else (),
  )
  size = len(Training._fields) - 1
  return {
    row[0]: Training(*row[:size], Provenance(*row[size:]))._replace(
      settings=_mapping(row[Training._fields.index('settings')])
    )
    for row in rows
  }


def read_evaluations(
  connection: sqlite3.Connection, keys: Sequence[str] = ()
) -> dict[int, Evaluation]:
  """Return evaluations by row id: all, or that of (training, evaluation)."""
  names = ['id', *Evaluation._fields[:-1], *Provenance._fields]
  where = 'WHERE training = ? AND evaluation = ?' if keys else ''
  rows = connection.execute(
    f'SELECT {_quoted(names)} FROM evaluations {where} ORDER BY id', keys
  )
  found = {}
  for number, training, evaluation, settings, data, result, *others in rows:
    found[number] = Evaluation(
      training,
      evaluation,
      _mapping(settings),
      data,
      {'views': {}, **_mapping(result)},
      Provenance(*others),
    )
  return found


def read_scores(
  connection: sqlite3.Connection, evaluation: int, view: str
) -> Evaluated | None:
  """Return the scores of a view, or None where it was not evaluated."""
  rows = connection.execute(
    f'SELECT client, train_count, {", ".join(SCORED)} FROM scores '
    'WHERE evaluation = ? AND view = ? ORDER BY client',
    (evaluation, view),
  ).fetchall()
  if not rows:
    return None
  ids, train_count, *columns = zip(*rows, strict=True)
  scores = [
    None if all(value is None for value in column) else np.array(column, float)
    for column in columns
  ]
  return Evaluated(np.array(ids), np.array(train_count), Scores(*scores))


def view_names(connection: sqlite3.Connection, evaluation: int) -> list[str]:
  rows = connection.execute(
    'SELECT DISTINCT view FROM scores WHERE evaluation = ?', (evaluation,)
  )
  return [view for (view,) in rows]


def _quoted(names: Sequence[str]) -> str:
  return ', '.join(f'"{name}"' for name in names)


def _mapping(text: str) -> dict[str, Any]:
  try:
    value = json.loads(text)
  except (ValueError, RecursionError):
    value = None
  if not isinstance(value, dict):
    raise sqlite3.DatabaseError(f'{text[:20]!r} is no JSON object')
  return value

"""What a file of results holds, under keys that are made anew.

Keys follow from settings and data. Those of another machine are not believed,
and those that were made with other defaults of the configs are not right any
more.
"""

import pathlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing

from fedjax_pfl.reproduction import keys
from fedjax_pfl.reproduction.gather import Gathered
from fedjax_pfl.runs import results_db, results_rows
from fedjax_pfl.runs.results_rows import Training


def renewed(
  trainings: Mapping[str, Training], defaults: keys.Settings
) -> dict[str, Training]:
  """Return {old key: training}, with the keys that these defaults give."""
  done = {}

  def renew(old: str) -> str:
    """Return the new key; of a training that is not here, the old one."""
    if old in trainings and old not in done:
      one = trainings[old]
      done[old] = one  # a file made by hand may go in circles
      start = renew(one.start) if one.start else ''
      shared = {'defaults': defaults, 'start_key': start}
      done[old] = one._replace(
        key=keys.training_key(one.settings, one.data, **shared),
        setting=keys.training_key(one.settings, '', **shared),
        start=start,
      )
    return done[old].key if old in done else old

  for old in trainings:
    renew(old)
  return done


def read_file(path: pathlib.Path, defaults: keys.Settings) -> list[Gathered]:
  """Return all evaluations of another file of results."""
  with (
    results_db.database_errors(path),
    closing(results_db.connect(path, write=False)) as connection,
  ):
    trainings = renewed(results_rows.read_trainings(connection), defaults)
    return list(_evaluations(connection, trainings, defaults))


def _evaluations(
  connection: sqlite3.Connection,
  trainings: Mapping[str, Training],
  defaults: keys.Settings,
) -> Iterator[Gathered]:
  for number, one in results_rows.read_evaluations(connection).items():
    if one.training not in trainings:
      raise sqlite3.DatabaseError('an evaluation without its training')
    training = trainings[one.training]
    evaluation = one._replace(
      training=training.key,
      evaluation=keys.evaluation_key(one.settings, defaults=defaults),
    )
    names = results_rows.view_names(connection, number)
    yield Gathered(
      training,
      evaluation,
      {
        name: results_rows.read_scores(connection, number, name)
        for name in names
      },
    )

"""Compute the keys in a file of results again.

The file of another machine is not trusted, and other defaults of the settings
make other keys.
"""

import pathlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing

from fedjax_pfl.reproduction.results.gather import Gathered
from fedjax_pfl.runs import results_db, results_rows
from fedjax_pfl.runs.results_rows import Training
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys


def renewed(
  trainings: Mapping[str, Training],
) -> dict[str, Training]:
  """Return {old key: training with its new key}."""
  done = {}

  def renew(old: str) -> str:
    """Return the new key; the old one of a training that is not in the file."""
    if old in trainings and old not in done:
      one = trainings[old]
      done[old] = one  # ends the recursion if a file has a cycle
      start = renew(one.start) if one.start else ''
      settings = parse_config(one.settings)
      done[old] = one._replace(
        key=keys.training_key(settings, one.data, start),
        setting=keys.training_key(settings, '', start),
        start=start,
      )
    return done[old].key if old in done else old

  for old in trainings:
    renew(old)
  return done


def read_file(path: pathlib.Path) -> list[Gathered]:
  """Return all evaluations of another file of results."""
  with (
    results_db.database_errors(path),
    closing(results_db.connect(path, write=False)) as connection,
  ):
    trainings = renewed(results_rows.read_trainings(connection))
    return list(_evaluations(connection, trainings))


def _evaluations(
  connection: sqlite3.Connection,
  trainings: Mapping[str, Training],
) -> Iterator[Gathered]:
  for number, one in results_rows.read_evaluations(connection).items():
    if one.training not in trainings:
      raise sqlite3.DatabaseError('an evaluation without its training')
    training = trainings[one.training]
    evaluation = one._replace(
      training=training.key,
      evaluation=keys.evaluation_key(parse_config(one.settings)),
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

"""The file with the results of many runs, looked up by keys.

>>> with Results.open('results') as results:
...   results.scan('results/runs')
...   found = results.find(training, evaluation, 'finetuned')

Each call writes one transaction: a killed process leaves the file unchanged,
and of two processes one waits for the other.
"""

import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores
from fedjax_pfl.reproduction.results import conflicts, gather, rekey
from fedjax_pfl.reproduction.results.gather import Gathered
from fedjax_pfl.runs import results_db, results_rows, run_dir
from fedjax_pfl.runs.results_rows import (
  Evaluated,
  Evaluation,
  Provenance,
  Training,
)
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import keys


class Found(NamedTuple):
  """The scores of one view of one evaluation, and their source."""

  settings: Settings  # of the evaluation
  data: str
  ids: Any  # [K]
  train_count: Any  # [K]
  scores: Scores  # [K]
  result: dict[str, Any]  # result.json: views, global, test_best
  training: Provenance
  evaluation: Provenance


class Results:
  """A file of results that is open for writing."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    self._connection = results_db.connect(path, write=True)

  @classmethod
  def open(cls, results: str | os.PathLike) -> 'Results':
    """Return the results of a folder, or of an .sqlite file, made if absent."""
    opened = cls(results_db.locate(results))
    opened._write(opened._update_keys)
    return opened

  def add_run(self, workdir: str | os.PathLike) -> int:
    """Add a finished run and its evaluations; return how many were new."""
    workdir = pathlib.Path(workdir)
    keys.load_config(workdir)
    if not run_dir.is_finished(workdir):
      raise bad_input(
        'run',
        got=str(workdir),
        expected='a finished run: status "finished" in result.json',
        cause='it was stopped: the command that started it continues it',
      )
    return self._write(lambda: self._add_run(workdir))

  def scan(self, folder: str | os.PathLike) -> int:
    """Add all finished runs in a folder; return how many evaluations were new.

    Runs that were gathered before are recognised by digests.
    """
    return self._write(lambda: self._scan(folder))

  def merge(self, other: str | os.PathLike) -> int:
    """Add the results of another machine; return how many were new.

    `other` is its folder of results, its file, or a folder of runs.
    """
    check_mergeable(other)
    file, folder = results_db.locate(other), pathlib.Path(other)
    runs = gather.find_runs(folder) if folder.is_dir() else []

    def add():
      number = self._merge_file(file) if file.is_file() else 0
      return number + self._scan(folder) if runs else number

    return self._write(add)

  def find(self, training: str, evaluation: str, view: str) -> Found | None:
    """Return the results of a view under these keys, or None."""
    with results_db.database_errors(self.path):
      found = self._evaluation(training, evaluation)
      if not found:
        return None
      number, evaluation = found
      evaluated = results_rows.read_scores(self._connection, number, view)
      if evaluated is None:
        return None
      trained = results_rows.read_trainings(self._connection, training)[
        training
      ]
    return Found(
      parse_config(evaluation.settings),
      evaluation.data,
      *evaluated,
      evaluation.result,
      trained.provenance,
      evaluation.provenance,
    )

  def trainings(self) -> dict[str, Training]:
    """Return every training by its key."""
    with results_db.database_errors(self.path):
      return results_rows.read_trainings(self._connection)

  def close(self) -> None:
    self._connection.close()

  def __enter__(self) -> 'Results':
    return self

  def __exit__(self, *error) -> None:
    self.close()

  def _write(self, function: Callable[[], Any]) -> Any:
    with (
      results_db.database_errors(self.path),
      results_db.transaction(self._connection),
    ):
      return function()

  def _scan(self, folder: str | os.PathLike) -> int:
    return sum(self._add_run(path) for path in gather.find_runs(folder))

  def _add_run(self, workdir: pathlib.Path) -> int:
    rows = self._connection.execute('SELECT digest FROM gathered')
    seen = {digest for (digest,) in rows}
    trainings = results_rows.read_trainings(self._connection).values()
    known = {
      one.model: one.key for one in trainings if gather.trained_model(one)
    }
    number = 0
    for digest, one in gather.iterate(workdir, known, seen):
      self._connection.execute('INSERT INTO gathered VALUES (?)', (digest,))
      number += self._add(one)
    return number

  def _merge_file(self, path: pathlib.Path) -> int:
    return sum(self._add(one) for one in rekey.read_file(path))

  def _add(self, one: Gathered) -> bool:
    """Add an evaluation; return whether it, or a view of it, is new."""
    self._check_data(one.training)
    trained = 'SELECT 1 FROM trainings WHERE key = ?'
    if not self._connection.execute(trained, (one.training.key,)).fetchone():
      results_rows.insert(self._connection, 'trainings', one.training)
    old = self._evaluation(one.training.key, one.evaluation.evaluation)
    if old is None:
      number = results_rows.insert(
        self._connection, 'evaluations', one.evaluation
      )
      new = one.views
    else:
      number, new = old[0], self._add_to(*old, one)
    for view, evaluated in new.items():
      results_rows.insert_scores(self._connection, number, view, evaluated)
    return old is None or bool(new)

  def _add_to(
    self, number: int, old: Evaluation, one: Gathered
  ) -> dict[str, Evaluated]:
    """Return the views that an old evaluation lacks; the others must agree."""
    conflicts.check_same_data(old, one.evaluation)
    new = {}
    for view, evaluated in one.views.items():
      known = results_rows.read_scores(self._connection, number, view)
      if known is None:
        new[view] = evaluated
      else:
        conflicts.check_scores(view, known, evaluated, old, one.evaluation)
    conflicts.check_results(old, one.evaluation)
    views = {**one.evaluation.result['views'], **old.result['views']}
    result = {**one.evaluation.result, **old.result, 'views': views}
    if result != old.result:
      results_rows.replace_result(self._connection, number, result)
    return new

  def _check_data(self, training: Training) -> None:
    """Refuse the same settings and seed on other data."""
    other = self._connection.execute(
      'SELECT data, path FROM trainings WHERE setting = ? AND key != ?',
      (training.setting, training.key),
    ).fetchone()
    if other:
      raise conflicts.other_data(training, *other)

  def _evaluation(
    self, training: str, evaluation: str
  ) -> tuple[int, Evaluation] | None:
    found = results_rows.read_evaluations(
      self._connection, (training, evaluation)
    )
    return next(iter(found.items()), None)

  def _update_keys(self) -> None:
    """Compute all keys again if the defaults of the settings have changed."""
    now = keys.digest_of_defaults()
    if self._connection.execute('SELECT * FROM defaults').fetchall() == [
      (now,)
    ]:
      return
    renewed = rekey.renewed(results_rows.read_trainings(self._connection))
    if len({one.key for one in renewed.values()}) < len(renewed):
      raise bad_input(
        'results',
        got=f'{self.path}, with one training under two keys',
        expected='a key for each training',
        choices=['move it away: it is made again from the run directories'],
        cause='an older version told fields that are written out as their '
        'defaults from fields that are left out',
      )
    self._connection.execute('DELETE FROM defaults')
    self._connection.execute('INSERT INTO defaults VALUES (?)', (now,))
    results_rows.replace_keys(
      self._connection,
      renewed,
      lambda evaluation: keys.evaluation_key(parse_config(evaluation.settings)),
    )


def check_mergeable(other: str | os.PathLike) -> None:
  """Refuse a path without results, before anything is opened for writing."""
  file, folder = results_db.locate(other), pathlib.Path(other)
  if file.is_file() or (folder.is_dir() and gather.find_runs(folder)):
    return
  raise bad_input(
    'merge',
    got=str(other),
    expected=f'a folder with {results_db.NAME} or with finished runs, or '
    'such a file',
    cause='a mistyped path, or runs that are not finished',
  )

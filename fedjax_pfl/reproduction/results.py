"""The runs in a folder of results, found by the keys of their trainings.

>>> results = Results('results')
>>> key = results.key_of(training)
>>> found = results.find(key, evaluation_key, 'finetuned')

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: `results/runs/` is all there is to know, and a run
that is added, continued or removed is seen when it is read again. Numbers of
which only the row in summary.csv is left are added as `rows`.
"""

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.plan import PlannedRun
from fedjax_pfl.reproduction.stored_runs import (
  StoredEvaluation,
  StoredRun,
  check_agree,
  data_of,
  evaluations_of,
  find_runs,
  settings_in,
)
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import divergence, keys

RUNS = 'runs'  # the folder of the run directories in that of the results
Row = Mapping[str, str]  # of summary.csv


class Results:
  """A folder of results: its run directories, by the keys of their trainings.

  Two directories of one training are both read, and may not disagree.
  """

  def __init__(self, folder: str | os.PathLike):
    self.folder = pathlib.Path(folder)
    self.runs = self.folder / RUNS
    self.paths: dict[str, pathlib.Path] = {}  # finished or not
    self.rows: dict[tuple[str, str], Row] = {}  # by key and view
    self.row_of: dict[str, Row] = {}  # any row of a training, by its key
    # Fingerprints of the data that a seed was run with, or begun.
    self.data: dict[int, set[str]] = {}
    self._kept: dict[int, set[str]] = {}  # those of rows without a run
    self._keys: dict[str, str] = {}  # settings without data -> keys
    self._read: dict[pathlib.Path, list[StoredEvaluation]] = {}
    self._models: dict[str, str] = {}  # digests of final models -> keys
    self.add_folder(self.runs)

  def add_folder(self, folder: str | os.PathLike) -> None:
    """Read all runs in a folder, also in folders below it."""
    for path in find_runs(folder):
      self.add_run(path)

  def add_run(self, path: pathlib.Path) -> None:
    """Read a run directory, again if it was read before.

    A damaged run is refused, and one that disagrees with another one.
    """
    self._read.pop(path, None)
    stored = keys.load_config(path)
    start = keys.start_key(path, self._models)
    try:
      settings = settings_in(stored)
    except BadInput as error:  # a run of another version
      raise BadInput(f'{path}: {error}') from error
    key = keys.training_key(settings, stored['data'], start)
    setting = keys.training_key(settings, '', start)
    is_finished = run_dir.is_finished(path)
    if not settings.system.quick:  # else its images may be synthetic
      self.data.setdefault(settings.seed, set()).add(data_of(stored))
      if is_finished or setting not in self._keys:
        self._keys[setting] = key
    if not is_finished:
      self.paths.setdefault(key, path)
      return
    if self.paths.get(key) not in self._read:
      self.paths[key] = path
    result = run_dir.load_result(path)
    run = StoredRun(path, key, setting, start, settings, stored, result)
    read = list(evaluations_of(run))
    for old, new in itertools.product(self.evaluations(), read):
      check_agree(old, new)
    self._read[path] = read
    if result['rounds']:  # else its model is that of another run
      self._models[run_dir.model_digest(path)] = key

  def set_rows(self, rows: Iterable[Row]) -> None:
    """Take the rows of summary.csv; they answer what no run here answers."""
    self.rows, self.row_of, self._kept = {}, {}, {}
    for row in rows:
      self.rows.setdefault((row['key'], row['view']), row)
      self.row_of[row['key'].partition('_')[0]] = row
      if ' quick=True' not in row['setting']:
        for data in (self.data, *[self._kept] * (not row['run'])):
          data.setdefault(int(row['seed']), set()).add(row['data'])

  def evaluations(self) -> Iterator[StoredEvaluation]:
    """Yield every evaluation; of one that two directories have, the first."""
    return (one for read in self._read.values() for one in read)

  def find(
    self, training: str, evaluation: str, view: str
  ) -> StoredEvaluation | None:
    """Return the evaluation under these keys that has a view, or None."""
    for one in self.evaluations():
      is_same = (one.run.key, one.key) == (training, evaluation)
      if is_same and view in one.clients.scores:
        return one
    return None

  def key_of(self, training: PlannedRun) -> str:
    """Return the key of a training, on the data that it was run with.

    '' if it was not begun: then its key is known when its data is built.
    """
    first, seed = training.init_from, training.settings.seed
    if first is None and training.identity in self._keys:
      return self._keys[training.identity]
    starts, data = [''], self._kept.get(seed, ())
    if first is not None:
      data, start = self.data.get(seed, ()), self.key_of(first)
      others = (keys.training_key(first.settings, one) for one in data)
      starts = [start] if start else [*others]
    for start, one in itertools.product(starts, data):
      key = keys.training_key(training.settings, one, start)
      if key in self.paths or key in self.row_of:
        return key
    return ''

  def path_of(self, training: PlannedRun) -> pathlib.Path | None:
    """Return the run directory of a training; None if it was not begun."""
    return self.paths.get(self.key_of(training))

  def diverged(self, training: PlannedRun) -> str:
    """Return the sentence of a training, or of its start, that diverged; ''."""
    paths = filter(None, map(self.path_of, training.chain))
    return next(filter(None, map(divergence.sentence_of, paths)), '')


def read_folder(folder: str | os.PathLike) -> Results:
  """Return the runs of a folder of results, or of any folder with runs."""
  results = Results(folder)
  if not results.paths:
    results.add_folder(folder)
  if not any(True for _ in results.evaluations()):
    place = results.folder.parent.glob(f'*/{RUNS}')
    raise bad_input(
      'results',
      got=str(folder),
      expected='a folder of results, or of runs, with finished runs in it',
      choices=sorted(str(path.parent) for path in place),
      cause='a mistyped path, or no run is finished yet',
    )
  return results

"""The runs in a folder of results: read from their directories, found by keys.

>>> results = Results('results')
>>> key = results.key_of(training)
>>> found = results.find(key, evaluation_key, 'finetuned')

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: `results/runs/` is all there is to know, and a run
that is added, continued or removed is seen when it is read again. Numbers of
which only the row in summary.csv is left are added as `rows`.
"""

import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction import merge
from fedjax_pfl.reproduction.plan import Training
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import divergence, keys
from fedjax_pfl.training.warm_start import model_digest

RUNS = 'runs'  # the folder of the run directories in that of the results
EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run
Row = Mapping[str, str]  # of summary.csv


class StoredRun(NamedTuple):
  """A finished training, as its directory has it."""

  path: pathlib.Path
  key: str  # of the training
  setting: str  # the key without the data
  start: str  # key of the training that it started from, or ''
  settings: Settings
  stored: dict[str, Any]  # config.json
  result: dict[str, Any]  # result.json

  @property
  def data(self) -> str:
    """Return the fingerprint of the data, without that of an initial model."""
    return self.stored['data'].partition('+')[0]


class StoredEvaluation(NamedTuple):
  """An evaluation of the last models of a run: its own, or a later one."""

  run: StoredRun
  path: pathlib.Path  # the run directory, or a folder in it
  key: str  # of the evaluation
  settings: Settings
  stored: dict[str, Any]
  result: dict[str, Any]

  @property
  def clients(self) -> Clients:
    file = self.path / run_dir.CLIENTS
    return _load_clients(self.path, file.stat().st_mtime_ns)

  @property
  def origin(self) -> str:
    """Return which run gave the numbers, and where, for a message."""
    commit = (self.stored.get('commit') or 'unknown')[:12]
    return f'{self.path} (commit {commit}, {machine_of(self.stored)})'


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
      data = self.data.setdefault(settings.seed, set())
      data.add(stored['data'].partition('+')[0])
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
    for new, old in itertools.product(read, list(self.evaluations())):
      merge.check_agree(old, new)
    self._read[path] = read
    if result['rounds']:  # else its model is that of another run
      self._models[model_digest(path)] = key

  def set_rows(self, rows: Iterable[Row]) -> None:
    """Take the rows of summary.csv; they answer what no run here answers."""
    self.rows, self.row_of, self._kept = {}, {}, {}
    for row in rows:
      self.rows.setdefault((row['key'], row['view']), row)
      self.row_of[row['key'].partition('_')[0]] = row
      seed = int(row['seed'])
      if ' quick=True' not in row['setting']:
        self.data.setdefault(seed, set()).add(row['data'])
        if not row['run']:
          self._kept.setdefault(seed, set()).add(row['data'])

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

  def key_of(self, training: Training) -> str:
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
    for start in starts:
      for one in data:
        key = keys.training_key(training.settings, one, start)
        if key in self.paths or key in self.row_of:
          return key
    return ''

  def path_of(self, training: Training) -> pathlib.Path | None:
    """Return the run directory of a training; None if it was not begun."""
    return self.paths.get(self.key_of(training))

  def diverged(self, training: Training) -> str:
    """Return the sentence of a training, or of its start, that diverged; ''."""
    paths = filter(None, map(self.path_of, training.chain))
    return next(filter(None, map(divergence.sentence_of, paths)), '')


def read_folder(folder: str | os.PathLike, flag: str = 'results') -> Results:
  """Return the runs of a folder of results, or of any folder with runs."""
  results = Results(folder)
  if not results.paths:
    results.add_folder(folder)
  if not any(True for _ in results.evaluations()):
    place = results.folder.parent.glob(f'*/{RUNS}')
    raise bad_input(
      flag,
      got=str(folder),
      expected='a folder of results, or of runs, with finished runs in it',
      choices=sorted(str(path.parent) for path in place),
      cause='a mistyped path, or no run is finished yet',
    )
  return results


def find_runs(folder: str | os.PathLike) -> list[pathlib.Path]:
  """Return the run directories in a folder; those with init_from come last.

  The folder may be a run itself. What begins with a dot is passed over: a copy
  that was not finished.
  """
  found = []
  for parent, folders, names in os.walk(folder):
    folders[:] = [name for name in folders if not name.startswith('.')]
    if identity.CONFIG in names:
      folders.clear()
      found.append(pathlib.Path(parent))
  begun = {path: '+' in keys.load_config(path)['data'] for path in found}
  return sorted(found, key=lambda path: (begun[path], path))


def evaluations_of(run: StoredRun) -> Iterator[StoredEvaluation]:
  """Yield the evaluations of a finished run: its own comes first."""
  run_dir.check_clients(run.path)
  own = keys.evaluation_key(run.settings)
  yield StoredEvaluation(
    run, run.path, own, run.settings, run.stored, run.result
  )
  for folder in sorted((run.path / EVALUATIONS).glob('*')):
    if folder.is_dir() and run_dir.is_finished(folder):
      run_dir.check_clients(folder)
      stored, result = keys.load_config(folder), run_dir.load_result(folder)
      settings = settings_in(stored)
      key = keys.evaluation_key(settings)
      yield StoredEvaluation(run, folder, key, settings, stored, result)


def settings_in(stored: dict[str, Any]) -> Settings:
  """Return the settings of a run; hyperparameters by the order of their names.

  `stored` is config.json, in which they have any order.
  """
  hp = sorted((stored['config'].get('hp') or {}).items())
  return parse_config({**stored['config'], 'hp': dict(hp)})


def machine_of(stored: dict[str, Any]) -> str:
  """Return 'Intel(R) Xeon(R) CPU @ 2.80GHz, 2 cores', or the accelerators."""
  devices = ', '.join(stored.get('devices') or ())
  processor = stored.get('processor') or ''
  if devices.endswith('cpu cpu'):
    return processor or 'CPU'  # older runs lack its name
  return '; '.join(filter(None, (devices, processor)))


@functools.lru_cache(maxsize=256)
def _load_clients(folder: pathlib.Path, changed: int) -> Clients:
  """Return clients.npz; `changed` is the time of its last change."""
  return run_dir.load_clients(folder)

"""The runs in a folder of results: read from their directories, found by keys.

>>> results = Results('results')
>>> found = results.find(training_key, evaluation_key, 'finetuned')

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: `results/runs/` is all there is to know, and a run
that is added, continued or removed is seen when it is read again.
"""

import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Scores
from fedjax_pfl.reproduction import merge
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import keys
from fedjax_pfl.training.warm_start import model_digest

RUNS = 'runs'  # the folder of the run directories in that of the results
EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run


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


class Found(NamedTuple):
  """The scores of one view of one evaluation."""

  ids: Any  # [K]
  train_count: Any  # [K]
  scores: Scores  # [K]
  evaluation: StoredEvaluation


class Results:
  """A folder of results: its run directories, by the keys of their trainings.

  Two directories of one training are both read, and may not disagree.
  """

  def __init__(self, folder: str | os.PathLike):
    self.folder = pathlib.Path(folder)
    self.paths: dict[str, pathlib.Path] = {}  # finished or not
    self._read: dict[pathlib.Path, list[StoredEvaluation]] = {}
    self._models: dict[str, str] = {}  # digests of final models -> keys
    self.add_folder(self.runs)

  @property
  def runs(self) -> pathlib.Path:
    return self.folder / RUNS

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
    if not run_dir.is_finished(path):
      self.paths.setdefault(key, path)
      return
    if self.paths.get(key) not in self._read:
      self.paths[key] = path
    setting = keys.training_key(settings, '', start)
    result = run_dir.load_result(path)
    run = StoredRun(path, key, setting, start, settings, stored, result)
    read = list(evaluations_of(run))
    for new in read:
      for old in self.evaluations():
        merge.check_agree(old, new)
    self._read[path] = read
    if result['rounds']:  # else its model is that of another run
      self._models[model_digest(path)] = key

  def evaluations(self) -> Iterator[StoredEvaluation]:
    """Yield every evaluation; of one that two directories have, the first."""
    return (one for read in self._read.values() for one in read)

  def find(self, training: str, evaluation: str, view: str) -> Found | None:
    """Return the results of a view under these keys, or None."""
    for one in self.evaluations():
      if (one.run.key, one.key) == (training, evaluation):
        clients = one.clients
        if view in clients.scores:
          scores = clients.scores[view]
          return Found(clients.ids, clients.train_count, scores, one)
    return None

  def path_of(self, key: str, name: str) -> pathlib.Path:
    """Return the directory of a training: that of its run, or a new one."""
    return self.paths.get(key, self.runs / name)


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
  for folder in [run.path, *sorted((run.path / EVALUATIONS).glob('*'))]:
    if folder == run.path:
      settings, stored, result = run.settings, run.stored, run.result
    elif folder.is_dir() and run_dir.is_finished(folder):
      stored, result = keys.load_config(folder), run_dir.load_result(folder)
      settings = settings_in(stored)
    else:
      continue
    run_dir.check_clients(folder)
    evaluation = keys.evaluation_key(settings)
    yield StoredEvaluation(run, folder, evaluation, settings, stored, result)


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

"""The runs in a folder of results, by the keys of their trainings.

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: `results/runs/` is all there is to know, and a run
that is added, continued or removed is seen when it is read again.
"""

import functools
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.runs import identity, result_file, run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import keys

RUNS = 'runs'  # the folder of the run directories in that of the results
EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run
TOLERANCE = 1e-6
# Of result.json: what two runs of one training have to agree in.
NUMBERS = (
  *('views', 'global', 'test_best', 'test_best_view', 'validation', 'last'),
  'unseen',
)


class StoredRun(NamedTuple):
  """A finished training, as its directory has it."""

  path: Path
  key: str  # of the training
  setting: str  # the key without the data
  start: str  # key of the model that it started from, or ''
  settings: Settings
  stored: dict[str, Any]  # config.json
  result: dict[str, Any]  # result.json

  @property
  def data(self) -> str:
    return data_of(self.stored)


class StoredEvaluation(NamedTuple):
  """An evaluation of the last models of a run: its own, or a later one."""

  run: StoredRun
  path: Path  # the run directory, or a folder in it
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


@functools.lru_cache(maxsize=256)
def _load_clients(folder: Path, changed: int) -> Clients:
  """Return clients.npz; `changed` is the time of its last change."""
  return run_dir.load_clients(folder)


class RunFolder:
  """The run directories of a folder of results, by the keys of their trainings.

  Two directories of one training are both read, and may not disagree.
  """

  def __init__(self, folder: AnyPath):
    self.folder = Path(folder)
    self.runs = self.folder / RUNS
    self.paths: dict[str, Path] = {}  # finished or not
    # Fingerprints of the data that a seed was run with, or begun.
    self.data: dict[int, set[str]] = {}
    self.key_of_setting: dict[str, str] = {}  # settings without data -> keys
    self._read: dict[Path, list[StoredEvaluation]] = {}
    self._models: dict[str, str] = {}  # digests of final models -> keys
    self.add_folder(self.runs)

  def add_folder(self, folder: AnyPath) -> None:
    """Read all runs in a folder, or below it; those with init_from come last.

    The folder may be a run itself. What begins with a dot is passed over: a
    copy that was not finished.
    """
    found = []
    for parent, folders, names in os.walk(folder):
      folders[:] = [name for name in folders if not name.startswith('.')]
      if identity.CONFIG in names:
        folders.clear()
        found.append(Path(parent))
    begun = {path: '+' in run_dir.load_config(path)['data'] for path in found}
    for path in sorted(found, key=lambda path: (begun[path], path)):
      self.add_run(path)

  def add_run(self, path: Path) -> None:
    """Read a run directory, again if it was read before.

    A damaged run is refused, and one that disagrees with another one.
    """
    self._read.pop(path, None)
    stored = run_dir.load_config(path)
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
      if is_finished or setting not in self.key_of_setting:
        self.key_of_setting[setting] = key
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
      model = keys.model_key(key, settings)
      self._models[run_dir.model_digest(path)] = model

  def evaluations(self) -> Iterator[StoredEvaluation]:
    """Yield every evaluation, also those that two directories have."""
    return (one for read in self._read.values() for one in read)


def evaluations_of(run: StoredRun) -> Iterator[StoredEvaluation]:
  """Yield the evaluations of a finished run: its own comes first."""
  folders = sorted((run.path / EVALUATIONS).glob('*'))
  for path in (run.path, *filter(run_dir.is_finished, folders)):
    result_file.check_clients(path)
    stored, result = run_dir.load_config(path), run_dir.load_result(path)
    settings = settings_in(stored)
    key = keys.evaluation_key(settings)
    yield StoredEvaluation(run, path, key, settings, stored, result)


def read_folder(folder: AnyPath) -> RunFolder:
  """Return the runs of a folder of results, or of any folder with runs."""
  results = RunFolder(folder)
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


def settings_in(stored: dict[str, Any]) -> Settings:
  """Return the settings of a run; hyperparameters by the order of their names.

  `stored` is config.json, in which they have any order.
  """
  hp = sorted((stored['config'].get('hp') or {}).items())
  return parse_config({**stored['config'], 'hp': dict(hp)})


def data_of(stored: dict[str, Any]) -> str:
  """Return the fingerprint of the data, without that of an initial model."""
  return stored['data'].partition('+')[0]


def machine_of(stored: dict[str, Any]) -> str:
  """Return 'Intel(R) Xeon(R) CPU @ 2.80GHz, 2 cores', or the accelerators."""
  devices = ', '.join(stored.get('devices') or ())
  if devices.endswith('cpu cpu'):
    return stored.get('processor') or 'CPU'  # older runs lack its name
  return re.sub(r' x (gpu|tpu) ', ' x ', devices)


def check_agree(old: StoredEvaluation, new: StoredEvaluation) -> None:
  """Refuse results of one training, or of one evaluation, that differ."""
  if old.run.setting != new.run.setting or _are_two_sets(old, new):
    return
  _check_data(old, new, old.run.stored, new.run.stored)
  if old.key != new.key:
    return
  _check_data(old, new, old.stored, new.stored)
  known, given = _numbers(old), _numbers(new)
  for name in filter(given.__contains__, known):  # versions differ in some
    pair = known[name], given[name]
    if np.isclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
      continue
    raise bad_input(
      'results',
      got=f'{name}={given[name]:.7g}, of {new.origin}',
      expected=f'{known[name]:.7g}, as {old.origin} gave for the same config, '
      'data and seed',
      choices=['leave one out', 'if both are from this machine, delete one'],
      cause='another version of the code or of jax, or another kind of '
      'machine: training amplifies differences in the last digit',
    )


def _numbers(one: StoredEvaluation) -> dict[str, float]:
  """Return the numbers of result.json by names: 'views.initial.mean'."""
  chosen = {name: one.result.get(name, {}) for name in NUMBERS}
  return {
    name: value
    for name, value in identity.flatten(chosen).items()
    if isinstance(value, int | float)
  }


def _are_two_sets(old: StoredEvaluation, new: StoredEvaluation) -> bool:
  """Return whether these are of other images of the user's own."""
  images = {data_of(one.run.stored).partition('-')[0] for one in (old, new)}
  return old.settings.data.dataset in OWN and len(images) > 1


def _check_data(
  old: StoredEvaluation, new: StoredEvaluation, *stored: dict[str, Any]
) -> None:
  known, given = map(data_of, stored)
  if known != given:
    raise bad_input(
      'data',
      got=f'{given} in {new.origin}',
      expected=f'{known}, on which {old.origin} has the same settings and seed',
      choices=['leave one of the two out', 'another --workdir for it'],
      cause='other image files, synthetic images in their place, or a '
      'partition that has changed',
    )

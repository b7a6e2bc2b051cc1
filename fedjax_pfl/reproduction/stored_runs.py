"""Finished trainings and their evaluations, as run directories have them."""

import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.runs import identity, result_file, run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import keys

EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run
TOLERANCE = 1e-6
# Of result.json: what two runs of one training have to agree in.
NUMBERS = (
  *('views', 'global', 'test_best', 'test_best_view', 'validation', 'last'),
  'unseen',
)


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
    return data_of(self.stored)


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


@functools.lru_cache(maxsize=256)
def _load_clients(folder: pathlib.Path, changed: int) -> Clients:
  """Return clients.npz; `changed` is the time of its last change."""
  return run_dir.load_clients(folder)


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
  folders = sorted((run.path / EVALUATIONS).glob('*'))
  for path in (run.path, *filter(run_dir.is_finished, folders)):
    result_file.check_clients(path)
    stored, result = keys.load_config(path), run_dir.load_result(path)
    settings = settings_in(stored)
    key = keys.evaluation_key(settings)
    yield StoredEvaluation(run, path, key, settings, stored, result)


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
  processor = stored.get('processor') or ''
  if devices.endswith('cpu cpu'):
    return processor or 'CPU'  # older runs lack its name
  return '; '.join(filter(None, (devices, processor)))


def check_agree(old: StoredEvaluation, new: StoredEvaluation) -> None:
  """Refuse results of one training, or of one evaluation, that differ."""
  if old.run.setting != new.run.setting:
    return
  if old.run.key != new.run.key:
    raise _other_data(old.run.data, old.origin, new.run.data, new.origin)
  if old.key != new.key:
    return
  pair = data_of(old.stored), data_of(new.stored)
  if pair[0] != pair[1]:
    raise _other_data(pair[0], old.origin, pair[1], new.origin)
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
      choices=[
        'leave one of the two out',
        'if both are from this machine, delete one',
      ],
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


def _other_data(known: str, place: str, given: str, origin: str) -> BadInput:
  return bad_input(
    'data',
    got=f'{given} in {origin}',
    expected=f'{known}, on which {place} has the same settings and seed',
    choices=['leave one of the two out', 'another --results for it'],
    cause='other image files, synthetic images in their place, or a partition '
    'that has changed',
  )

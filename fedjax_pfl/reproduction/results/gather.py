"""From a finished run directory to records of its training and evaluations."""

import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training import keys

EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run


class Provenance(NamedTuple):
  """Which run gave the numbers, and where; '' and None: not recorded."""

  path: str  # the run directory, on this machine
  version: str
  commit: str
  devices: str
  processor: str
  seconds: float | None

  def __str__(self) -> str:
    commit = self.commit[:12] or 'unknown'
    return f'{self.path} (commit {commit}, {self.processor or self.devices})'


class Training(NamedTuple):
  """A training, by its keys (training/keys.py)."""

  key: str
  setting: str  # the key without the data
  start: str  # key of the training that it started from, or ''
  model: str  # digest of its final global model, or ''
  settings: Settings
  data: str
  rounds: int | None
  provenance: Provenance


class Evaluation(NamedTuple):
  """An evaluation of the last models of a training."""

  training: str
  evaluation: str
  settings: Settings
  data: str
  result: dict[str, Any]  # as result.json
  provenance: Provenance
  # Where the scores of a view are: {view: folder with clients.npz}.
  folders: dict[str, pathlib.Path]


class Evaluated(NamedTuple):
  """The scores of the clients in one view."""

  ids: Any  # [K]
  train_count: Any  # [K]
  scores: Scores  # [K]


def find_runs(folder: str | os.PathLike) -> list[pathlib.Path]:
  """Return the finished runs in a folder; those with init_from come last.

  The folder may be a run itself. A run that is being copied is left out.
  """
  found = []
  for parent, folders, names in os.walk(folder):
    folders[:] = [one for one in folders if not atomic_files.is_temporary(one)]
    if identity.CONFIG in names:
      folders.clear()
      if is_finished(parent):
        found.append(pathlib.Path(parent))
  return sorted(found, key=lambda path: ('+' in _data(path), path))


def folders_of(workdir: pathlib.Path) -> list[pathlib.Path]:
  """Return the run itself, and the folders of later evaluations."""
  again = sorted(
    path for path in (workdir / EVALUATIONS).glob('*') if path.is_dir()
  )
  return [workdir, *(path for path in again if is_finished(path))]


def digest(workdir: pathlib.Path, folder: pathlib.Path) -> str:
  """Return the digest of the files that an evaluation is read from."""
  names = (identity.CONFIG, run_dir.RESULT, run_dir.CLIENTS)
  paths = [workdir / identity.CONFIG, *(folder / name for name in names)]
  parts = [
    hashlib.sha256(path.read_bytes()).digest()
    for path in paths
    if path.is_file()
  ]
  return hashlib.sha256(b''.join(parts)).hexdigest()[:16]


def read_training(workdir: pathlib.Path, known: Mapping[str, str]) -> Training:
  """Return the record of a training; for `known`, see `keys.start_key`."""
  stored = keys.load_config(workdir)
  start = keys.start_key(workdir, known)
  result = run_dir.load_result(workdir)
  settings = _settings(stored['config'])
  return Training(
    key=keys.training_key(settings, stored['data'], start),
    setting=keys.training_key(settings, '', start),
    start=start,
    model=result.get('model', ''),
    settings=settings,
    data=stored['data'],
    rounds=result['rounds'],
    provenance=_provenance(workdir, stored, result),
  )


def trained_model(training: Training) -> bool:
  """Return whether the run trained its final model: it has rounds."""
  initial = training.data.partition('+')[2]
  return bool(training.model) and training.model != initial


def read_evaluation(folder: pathlib.Path, training: str) -> Evaluation:
  """Return the evaluation in a run directory, or in one of its folders.

  `training` is the key of its training.
  """
  run_dir.check_clients(folder)
  stored, result = keys.load_config(folder), run_dir.load_result(folder)
  settings = _settings(stored['config'])
  return Evaluation(
    training,
    keys.evaluation_key(settings),
    settings,
    stored['data'],
    result,
    _provenance(folder, stored, result),
    dict.fromkeys(result['views'], folder),
  )


def read_scores(evaluation: Evaluation, view: str) -> Evaluated | None:
  """Return the scores of a view, or None where it was not evaluated."""
  folder = evaluation.folders.get(view)
  if folder is None:
    return None
  clients = run_dir.load_clients(folder)
  return Evaluated(clients.ids, clients.train_count, clients.scores[view])


def _provenance(
  folder: pathlib.Path, stored: Mapping[str, Any], result: Mapping[str, Any]
) -> Provenance:
  return Provenance(
    path=str(folder.absolute()),
    version=stored.get('version') or '',
    commit=stored.get('commit') or '',
    devices=', '.join(stored.get('devices') or ()),
    processor=stored.get('processor') or '',
    seconds=result.get('seconds'),
  )


def _settings(config: Mapping[str, Any]) -> Settings:
  """Return the settings; hyperparameters come in the order of their names."""
  hp = sorted((config.get('hp') or {}).items())
  return parse_config({**config, 'hp': dict(hp)})


def _data(workdir: pathlib.Path) -> str:
  return keys.load_config(workdir)['data']

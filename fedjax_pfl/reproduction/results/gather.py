"""From a finished run directory to records of its training and evaluations."""

import hashlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.results_rows import (
  Evaluated,
  Evaluation,
  Provenance,
  Training,
)
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.settings import parse_config, to_config
from fedjax_pfl.training import keys
from fedjax_pfl.training.warm_start import model_digest

EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run


class Gathered(NamedTuple):
  """One evaluation of a run, its views, and the training behind it."""

  training: Training
  evaluation: Evaluation
  views: dict[str, Evaluated]


def find_runs(folder: str | os.PathLike) -> list[pathlib.Path]:
  """Return the finished runs in a folder; those with init_from come last.

  The folder may be a run itself.
  """
  found = []
  for parent, folders, names in os.walk(folder):
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
  metrics = []
  if (workdir / run_dir.METRICS).is_file():  # none where no round was run
    metrics = run_dir.load_metrics(workdir)
  result = run_dir.load_result(workdir)
  settings = parse_config(stored['config'])
  return Training(
    key=keys.training_key(settings, stored['data'], start),
    setting=keys.training_key(settings, '', start),
    start=start,
    model=model_digest(workdir),
    settings=to_config(settings),
    data=stored['data'],
    seed=settings.seed,
    rounds=result['rounds'],
    images_per_second=_median(metrics, 'images_per_second'),
    bytes_down=_sum(metrics, 'bytes_down'),
    bytes_up=_sum(metrics, 'bytes_up'),
    provenance=_provenance(workdir, stored, result, metrics),
  )


def trained_model(training: Training) -> bool:
  """Return whether the run trained its final model: it has rounds."""
  initial = training.data.partition('+')[2]
  return bool(training.model) and training.model != initial


def read_evaluation(folder: pathlib.Path, training: Training) -> Gathered:
  """Return the evaluation in a run directory, or in one of its folders."""
  run_dir.check_clients(folder)
  stored, result = keys.load_config(folder), run_dir.load_result(folder)
  clients = run_dir.load_clients(folder)
  views = {
    view: Evaluated(clients.ids, clients.train_count, scores)
    for view, scores in clients.scores.items()
  }
  settings = parse_config(stored['config'])
  evaluation = Evaluation(
    training=training.key,
    evaluation=keys.evaluation_key(settings),
    settings=to_config(settings),
    data=stored['data'],
    result=result,
    provenance=_provenance(folder, stored, result, []),
  )
  return Gathered(training, evaluation, views)


def _provenance(
  folder: pathlib.Path,
  stored: Mapping[str, Any],
  result: Mapping[str, Any],
  metrics: list[Mapping[str, Any]],
) -> Provenance:
  # A copied file may have a new time: the last line of metrics is safer.
  times = [line['time'] for line in metrics[-1:]]
  return Provenance(
    path=str(folder.absolute()),
    version=stored.get('version') or '',
    commit=stored.get('commit') or '',
    jax=stored.get('jax') or '',
    devices=', '.join(stored.get('devices') or ()),
    processor=stored.get('processor') or '',
    finished=(times or [(folder / run_dir.RESULT).stat().st_mtime])[0],
    seconds=result.get('seconds'),
  )


def _median(metrics: list[Mapping[str, Any]], name: str) -> float | None:
  values = [line[name] for line in metrics if line.get(name) is not None]
  return float(np.median(values)) if values else None


def _sum(metrics: list[Mapping[str, Any]], name: str) -> int | None:
  values = [line[name] for line in metrics if line.get(name) is not None]
  return sum(values) if values else None


def _data(workdir: pathlib.Path) -> str:
  return keys.load_config(workdir)['data']


def iterate(
  workdir: pathlib.Path,
  known: Mapping[str, str],
  seen: set[str],
) -> Iterator[tuple[str, Gathered]]:
  """Yield (digest, evaluation) of a run, without digests seen before."""
  new = {
    new_digest: folder
    for folder in folders_of(workdir)
    if (new_digest := digest(workdir, folder)) not in seen
  }
  if not new:
    return
  training = read_training(workdir, known)
  for new_digest, folder in new.items():
    yield new_digest, read_evaluation(folder, training)

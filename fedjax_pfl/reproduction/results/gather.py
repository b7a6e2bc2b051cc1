"""From a finished run directory to the records of what it gave."""

import hashlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.reproduction.planning import keys
from fedjax_pfl.reproduction.execution.evaluate_again import FOLDER
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.results_rows import (
  Evaluated,
  Evaluation,
  Provenance,
  Training,
)
from fedjax_pfl.training.warm_start import model_digest


class Gathered(NamedTuple):
  """One evaluation of a run, its views, and the training behind it."""

  training: Training
  evaluation: Evaluation
  views: dict[str, Evaluated]


def find_runs(folder: str | os.PathLike) -> list[pathlib.Path]:
  """Return the finished runs in a folder, those with a start of their own last.

  The folder may be a run itself; runs do not lie in runs.
  """
  found = []
  for parent, folders, names in os.walk(folder):
    if identity.CONFIG in names:
      folders.clear()
      if is_finished(parent):
        found.append(pathlib.Path(parent))
  return sorted(found, key=lambda path: ('+' in _data(path), path))


def is_finished(workdir: str | os.PathLike) -> bool:
  """Return whether result.json says so."""
  if not (pathlib.Path(workdir) / run_dir.RESULT).is_file():
    return False
  return run_dir.load_result(workdir).get('status') == 'finished'


def folders_of(workdir: pathlib.Path) -> list[pathlib.Path]:
  """Return the run itself, and where its models were evaluated again."""
  again = sorted(path for path in (workdir / FOLDER).glob('*') if path.is_dir())
  return [workdir, *(path for path in again if is_finished(path))]


def digest(workdir: pathlib.Path, folder: pathlib.Path) -> str:
  """Return the digest of all that an evaluation is made of."""
  names = (identity.CONFIG, run_dir.RESULT, run_dir.CLIENTS)
  paths = [workdir / identity.CONFIG, *(folder / name for name in names)]
  parts = [
    hashlib.sha256(path.read_bytes()).digest()
    for path in paths
    if path.is_file()
  ]
  return hashlib.sha256(b''.join(parts)).hexdigest()[:16]


def read_training(
  workdir: pathlib.Path, defaults: keys.Settings, known: Mapping[str, str]
) -> Training:
  """Return what was trained; `known` finds the run that it began with."""
  stored = keys.load_config(workdir)
  start = keys.start_key(workdir, defaults=defaults, known=known)
  metrics = []
  if (workdir / run_dir.METRICS).is_file():  # none where no round was run
    metrics = run_dir.load_metrics(workdir)
  result = run_dir.load_result(workdir)
  settings = keys.with_defaults(stored['config'], defaults)
  shared = {'defaults': defaults, 'start_key': start}
  return Training(
    key=keys.training_key(settings, stored['data'], **shared),
    setting=keys.training_key(settings, '', **shared),
    start=start,
    model=model_digest(workdir),
    settings=settings,
    data=stored['data'],
    seed=settings['seed'],
    rounds=result['rounds'],
    images_per_second=_median(metrics, 'images_per_second'),
    bytes_down=_sum(metrics, 'bytes_down'),
    bytes_up=_sum(metrics, 'bytes_up'),
    provenance=_provenance(workdir, stored, result, metrics),
  )


def made_model(training: Training) -> bool:
  """Return whether it trained its final model, and did not just evaluate it."""
  begun = training.data.partition('+')[2]
  return bool(training.model) and training.model != begun


def read_evaluation(
  folder: pathlib.Path, training: Training, defaults: keys.Settings
) -> Gathered:
  """Return the evaluation in a run directory, or in one of its folders."""
  stored, result = keys.load_config(folder), run_dir.load_result(folder)
  clients = run_dir.load_clients(folder)
  # result.json is written last: what it does not name is not whole yet.
  views = {
    view: Evaluated(clients.ids, clients.train_count, scores)
    for view, scores in clients.scores.items()
    if view in result['views']
  }
  evaluation = Evaluation(
    training=training.key,
    evaluation=keys.evaluation_key(stored['config'], defaults=defaults),
    settings=keys.with_defaults(stored['config'], defaults),
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
  # A copy may have times of its own: the last line of metrics is safer.
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
  defaults: keys.Settings,
  known: Mapping[str, str],
  seen: set[str],
) -> Iterator[tuple[str, Gathered]]:
  """Yield (digest, evaluation) of a run, but for those digests seen before."""
  new = {
    mark: folder
    for folder in folders_of(workdir)
    if (mark := digest(workdir, folder)) not in seen
  }
  if not new:
    return
  training = read_training(workdir, defaults, known)
  for mark, folder in new.items():
    yield mark, read_evaluation(folder, training, defaults)

"""The results of many run directories, looked up by keys.

>>> results = Results()
>>> results.scan('results/runs')
>>> found = results.find(training, evaluation, 'finetuned')

They are read anew by every command (1,000 runs take 1.3 s of a core), so that
there is nothing beside the run directories that could be out of date. The
scores of clients are read when they are asked for.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Scores
from fedjax_pfl.reproduction.results import conflicts, gather
from fedjax_pfl.reproduction.results.gather import (
  Evaluation,
  Provenance,
  Training,
)
from fedjax_pfl.runs import lock, run_dir
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import keys

RUNS = 'runs'  # the folder of the run directories in that of the results
NOT_COPIED = ('checkpoints', 'tb', lock.NAME)  # of a merged run


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
  """What was gathered from run directories; nothing is written."""

  def __init__(self):
    self._trainings: dict[str, Training] = {}
    self._evaluations: dict[tuple[str, str], Evaluation] = {}
    self._seen: set[str] = set()  # digests of what was gathered
    self._of_setting: dict[str, Training] = {}  # whatever its data
    self._models: dict[str, str] = {}  # {digest of a model: key of training}

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
    new = {
      digest: folder
      for folder in gather.folders_of(workdir)
      if (digest := gather.digest(workdir, folder)) not in self._seen
    }
    if not new:
      return 0
    training = gather.read_training(workdir, self._models)
    number = 0
    for digest, folder in new.items():
      number += self._add(
        training, gather.read_evaluation(folder, training.key)
      )
      self._seen.add(digest)
    return number

  def scan(self, folder: str | os.PathLike) -> int:
    """Add all finished runs in a folder; return how many evaluations were new.

    Runs that were gathered before are recognised by digests.
    """
    return sum(self.add_run(path) for path in gather.find_runs(folder))

  def find(self, training: str, evaluation: str, view: str) -> Found | None:
    """Return the results of a view under these keys, or None."""
    found = self._evaluations.get((training, evaluation))
    evaluated = gather.read_scores(found, view) if found else None
    if evaluated is None:
      return None
    return Found(
      found.settings,
      found.data,
      *evaluated,
      found.result,
      self._trainings[training].provenance,
      found.provenance,
    )

  def trainings(self) -> dict[str, Training]:
    """Return every training by its key."""
    return dict(self._trainings)

  def evaluations(self) -> Iterator[tuple[Training, Evaluation]]:
    """Yield every evaluation and its training, in the order of gathering."""
    for evaluation in self._evaluations.values():
      yield self._trainings[evaluation.training], evaluation

  def _add(self, training: Training, new: Evaluation) -> bool:
    """Add an evaluation; return whether it, or a view of it, is new."""
    one = self._of_setting.setdefault(training.setting, training)
    if one.key != training.key:
      raise conflicts.other_data(training, one.data, one.provenance.path)
    self._trainings.setdefault(training.key, training)
    if gather.trained_model(training):
      self._models[training.model] = training.key
    key = (new.training, new.evaluation)
    old = self._evaluations.get(key)
    if old is None:
      self._evaluations[key] = new
      return True
    conflicts.check(old, new)
    views = {**new.result['views'], **old.result['views']}
    self._evaluations[key] = old._replace(
      result={**new.result, **old.result, 'views': views},
      folders={**new.folders, **old.folders},
    )
    return not new.folders.keys() <= old.folders.keys()


def merge(other: str | os.PathLike, folder: pathlib.Path) -> int:
  """Copy the runs of another machine into a folder of results.

  `other` is its folder of results, or a folder of runs. Runs of which
  everything is here already are left out; where one contradicts ours, nothing
  is copied. Returns how many evaluations were new.
  """
  check_mergeable(other)
  results, new = Results(), {}
  results.scan(folder / RUNS)
  for path in gather.find_runs(other):
    if number := results.add_run(path):
      new[path] = number
  with _empty_folder(folder, '.merge.tmp') as temporary:
    for path in new:
      name = _free_name(folder / RUNS, path.name)
      shutil.copytree(
        path, temporary / name, ignore=shutil.ignore_patterns(*NOT_COPIED)
      )
      (folder / RUNS).mkdir(exist_ok=True)
      os.replace(temporary / name, folder / RUNS / name)
  return sum(new.values())


def check_mergeable(other: str | os.PathLike) -> None:
  """Refuse a path without results, before anything is written."""
  if pathlib.Path(other).is_dir() and gather.find_runs(other):
    return
  raise bad_input(
    'merge',
    got=str(other),
    expected='a folder with finished runs',
    cause='a mistyped path, runs that are not finished, or results.sqlite of '
    'version 0.1, from which its own version alone reads',
  )


@contextlib.contextmanager
def _empty_folder(folder: pathlib.Path, name: str) -> Iterator[pathlib.Path]:
  """Yield a folder for what is not complete; it is removed afterwards."""
  place = folder / name
  with atomic_files.writing(folder, 'results', 'the runs of another machine'):
    shutil.rmtree(place, ignore_errors=True)  # what a killed process left
    place.mkdir(parents=True)
    yield place
    shutil.rmtree(place)


def _free_name(folder: pathlib.Path, name: str) -> str:
  """Return the name, with a number if it is taken."""
  number, free = 1, name
  while (folder / free).exists():
    number += 1
    free = f'{name}-{number}'
  return free

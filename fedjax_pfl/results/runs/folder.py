"""The runs in a folder of results, by the keys of their trainings.

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: `results/runs/` is all there is to know, and a run
that is added, continued or removed is seen when it is read again.
"""

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
from fedjax_pfl.results.runs.run import Run, open_run, settings_in
from fedjax_pfl.runs import identity, result_file, run_dir
from fedjax_pfl.training import keys

RUNS = 'runs'  # the folder of the run directories in that of the results
EVALUATIONS = 'evaluations'  # the folder of later evaluations in a run
TOLERANCE = 1e-6
# Of result.json: what two runs of one training have to agree in.
NUMBERS = (
  *('views', 'global', 'test_best', 'test_best_view', 'validation', 'last'),
  'unseen',
)


class Training(NamedTuple):
  """A finished training, by its keys."""

  run: Run
  key: str
  setting: str  # the key without the data
  start: str  # key of the model that it started from, or ''


class Evaluation(NamedTuple):
  """An evaluation of the last models of a run: its own, or a later one."""

  training: Training
  run: Run  # of the run directory, or of a folder in it
  key: str  # of the evaluation

  @property
  def origin(self) -> str:
    """Return which run gave the numbers, and where, for a message."""
    commit = (self.run.record.get('commit') or 'unknown')[:12]
    return f'{self.run.path} (commit {commit}, {machine_of(self.run.record)})'


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
    self._read: dict[Path, list[Evaluation]] = {}
    self._models: dict[str, str] = {}  # digests of final models -> keys
    self.add_folder(self.runs)

  def add_folder(self, folder: AnyPath) -> None:
    """Read all runs in a folder, or below it; those with init_from come last.

    The folder may be a run itself. What begins with a dot is passed over: a
    copy that was not finished.
    """
    runs = []
    for parent, folders, names in os.walk(folder):
      folders[:] = [name for name in folders if not name.startswith('.')]
      if identity.CONFIG in names:
        folders.clear()
        runs.append(Path(parent))
    begun = {path: '+' in run_dir.load_config(path)['data'] for path in runs}
    for path in sorted(runs, key=lambda path: (begun[path], path)):
      self.add_run(path)

  def add_run(self, path: Path) -> None:
    """Read a run directory, again if it was read before.

    A damaged run is refused, and one that disagrees with another one.
    """
    self._read.pop(path, None)
    record = run_dir.load_config(path)
    start = keys.start_key(path, self._models)
    try:
      settings = settings_in(record)
    except BadInput as error:  # a run of another version
      raise BadInput(f'{path}: {error}') from error
    key = keys.training_key(settings, record['data'], start)
    setting = keys.training_key(settings, '', start)
    is_finished = run_dir.is_finished(path)
    if not settings.system.quick:  # else its images may be synthetic
      self.data.setdefault(settings.seed, set()).add(data_of(record))
      if is_finished or setting not in self.key_of_setting:
        self.key_of_setting[setting] = key
    if not is_finished:
      self.paths.setdefault(key, path)
      return
    if self.paths.get(key) not in self._read:
      self.paths[key] = path
    training = Training(open_run(path), key, setting, start)
    read = list(evaluations_of(training))
    for old, new in itertools.product(self.evaluations(), read):
      check_agree(old, new)
    self._read[path] = read
    if training.run.result['rounds']:  # else its model is that of another run
      model = keys.model_key(key, settings)
      self._models[run_dir.model_digest(path)] = model

  def evaluations(self) -> Iterator[Evaluation]:
    """Yield every evaluation, also those that two directories have."""
    return (evaluation for read in self._read.values() for evaluation in read)


def evaluations_of(training: Training) -> Iterator[Evaluation]:
  """Yield the evaluations of a finished run: its own comes first."""
  first = training.run.path
  folders = sorted((first / EVALUATIONS).glob('*'))
  for path in (first, *filter(run_dir.is_finished, folders)):
    result_file.check_clients(path)
    run = open_run(path)
    yield Evaluation(training, run, keys.evaluation_key(run.settings))


def read_folder(folder: AnyPath) -> RunFolder:
  """Return the runs of a folder of results, or of any folder with runs."""
  results = RunFolder(folder)
  if not results.paths:
    results.add_folder(folder)
  if not any(True for _ in results.evaluations()):
    others = results.folder.parent.glob(f'*/{RUNS}')
    raise bad_input(
      'results',
      got=str(folder),
      expected='a folder of results, or of runs, with finished runs in it',
      choices=sorted(str(path.parent) for path in others),
      cause='a mistyped path, or no run is finished yet',
    )
  return results


def data_of(record: dict[str, Any]) -> str:
  """Return the fingerprint of the data, without that of an initial model."""
  return record['data'].partition('+')[0]


def machine_of(record: dict[str, Any]) -> str:
  """Return 'Intel(R) Xeon(R) CPU @ 2.80GHz, 2 cores', or the accelerators."""
  devices = ', '.join(record.get('devices') or ())
  if devices.endswith('cpu cpu'):
    return record.get('processor') or 'CPU'  # older runs lack its name
  return re.sub(r' x (gpu|tpu) ', ' x ', devices)


def check_agree(old: Evaluation, new: Evaluation) -> None:
  """Refuse results of one training, or of one evaluation, that differ."""
  runs = old.training.run, new.training.run
  images = {run.data.partition('-')[0] for run in runs}
  of_users = old.run.settings.data.dataset in OWN
  if old.training.setting != new.training.setting:
    return
  if of_users and len(images) > 1:
    return  # two sets of one name
  _check_data(old, new, *runs)
  if old.key != new.key:
    return
  _check_data(old, new, old.run, new.run)
  known, given = _numbers(old), _numbers(new)
  for name in filter(given.__contains__, known):  # versions differ in some
    pair = known[name], given[name]
    if not np.isclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
      raise bad_input(
        'results',
        got=f'{name}={given[name]:.7g}, of {new.origin}',
        expected=f'{known[name]:.7g}, as {old.origin} gave for the same '
        'config, data and seed',
        choices=['leave one out', 'if both are from this machine, delete one'],
        cause='another version of the code or of jax, or another kind of '
        'machine: training amplifies differences in the last digit',
      )


def _numbers(evaluation: Evaluation) -> dict[str, float]:
  """Return the numbers of result.json by names: 'views.initial.mean'."""
  chosen = {name: evaluation.run.result.get(name, {}) for name in NUMBERS}
  return {
    name: value
    for name, value in identity.flatten(chosen).items()
    if isinstance(value, int | float)
  }


def _check_data(
  old: Evaluation, new: Evaluation, known: Run, given: Run
) -> None:
  if known.data != given.data:
    raise bad_input(
      'data',
      got=f'{given.data} in {new.origin}',
      expected=f'{known.data}, on which {old.origin} has the same settings '
      'and seed',
      choices=['leave one of the two out', 'another --workdir for it'],
      cause='other image files, synthetic images in their place, or a '
      'partition that has changed',
    )

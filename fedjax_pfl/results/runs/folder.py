"""The evaluations in a folder of results, by the keys of their trainings.

A run directory is recognised by its content (`training/keys.py`), whatever its
name is. Nothing is written: the run directories are all there is to know.
"""

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.results.runs.run import Run, open_run
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
  """A training, by its keys."""

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


def read_folder(folder: AnyPath) -> list[Evaluation]:
  """Return the evaluations in a folder of results, or in any with runs.

  Two directories of one training are both read, and may not disagree.
  """
  folder, models = Path(folder), {}
  evaluations: list[Evaluation] = []
  for path in run_directories(folder / RUNS) or run_directories(folder):
    training = read_training(path, models)
    evaluations += read_evaluations(training, evaluations)
  if not evaluations:
    others = folder.parent.glob(f'*/{RUNS}')
    raise bad_input(
      'results',
      got=str(folder),
      expected='a folder of results, or of runs, with finished runs in it',
      choices=sorted(str(path.parent) for path in others),
    )
  return evaluations


def run_directories(folder: Path) -> list[Path]:
  """Return the runs in a folder, or below it; those with init_from come last.

  The folder may be a run itself. What begins with a dot is passed over: a copy
  that was not finished.
  """
  runs = []
  for parent, folders, names in os.walk(folder):
    folders[:] = [name for name in folders if not name.startswith('.')]
    if identity.CONFIG in names:
      folders.clear()
      has_start = '+' in run_dir.load_config(parent)['data']
      runs.append((has_start, Path(parent)))
  return [path for _, path in sorted(runs)]


def read_training(path: Path, models: dict[str, str]) -> Training:
  """Return the training of a run, finished or not; refuse a damaged one.

  `models` are the keys of the final models of other runs, by the digest of a
  model; the run adds its own.
  """
  run, start = open_run(path), keys.start_key(path, models)
  try:
    settings = run.settings
  except BadInput as error:  # a run of another version
    raise BadInput(f'{path}: {error}') from error
  key = keys.training_key(settings, run.record['data'], start)
  setting = keys.training_key(settings, '', start)
  if run.result.get('rounds'):  # else its model is that of another run
    models[run_dir.model_digest(path)] = keys.model_key(key, settings)
  return Training(run, key, setting, start)


def read_evaluations(
  training: Training, others: Iterable[Evaluation]
) -> list[Evaluation]:
  """Return the evaluations of a run, its own first; [] of an unfinished one.

  One that disagrees with one of `others` is refused.
  """
  first = training.run.path
  folders = sorted((first / EVALUATIONS).glob('*'))
  evaluations = []
  for path in filter(run_dir.is_finished, (first, *folders)):
    result_file.check_clients(path)
    run = open_run(path)
    key = keys.evaluation_key(run.settings)
    evaluations.append(Evaluation(training, run, key))
  for old, new in itertools.product(others, evaluations):
    check_agree(old, new)
  return evaluations


def machine_of(record: dict[str, Any]) -> str:
  """Return 'Intel(R) Xeon(R) CPU @ 2.80GHz, 2 cores', or the accelerators."""
  devices = ', '.join(record.get('devices') or ())
  if devices.endswith('cpu cpu'):
    return record.get('processor') or 'CPU'  # older runs lack its name
  return re.sub(r' x (gpu|tpu) ', ' x ', devices)


def check_agree(old: Evaluation, new: Evaluation) -> None:
  """Refuse results of one training, or of one evaluation, that differ."""
  if old.training.setting != new.training.setting:
    return
  pairs = [(old.training.run, new.training.run), (old.run, new.run)]
  images = {run.data.partition('-')[0] for run in pairs[0]}
  if old.run.settings.data.dataset in OWN and len(images) > 1:
    return  # two sets of one name
  for known, given in pairs[: 1 + (old.key == new.key)]:
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
  if old.key != new.key:
    return
  known, given = _numbers(old), _numbers(new)
  for name in filter(given.__contains__, known):  # versions differ in some
    if not np.isclose(
      known[name], given[name], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    ):
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

"""Train and evaluate what the results lack; a stopped command can be repeated.

Finished runs are found by the content of their directories, and stopped ones
continue from their last checkpoint. A training that diverges ends alone: the
others go on, and it is not repeated (training/divergence.py).
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fedjax_pfl.reproduction.cells import Reading
from fedjax_pfl.reproduction.execution.evaluate_again import (
  OF_SERVER,
  evaluate_again,
  stored_name,
)
from fedjax_pfl.reproduction.planning.plan import (
  Evaluation,
  Training,
  distinct_trainings,
  group_seeds,
)
from fedjax_pfl.reproduction.results.results import RUNS, Found, Results
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training import divergence, keys
from fedjax_pfl.training.build import Experiment, build_experiment
from fedjax_pfl.training.loop import train_many

Log = Callable[[str], None]


class Workspace(NamedTuple):
  """A folder of results, what its runs gave, and where they are."""

  folder: pathlib.Path
  results: Results
  found: Mapping[str, pathlib.Path]  # {training key: run directory}

  @property
  def runs(self) -> pathlib.Path:
    return self.folder / RUNS


def open_workspace(folder: pathlib.Path) -> Workspace:
  """Return the workspace; gather its finished runs, whatever their names."""
  found, results = find_directories(folder), Results()
  results.scan(folder / RUNS)
  return Workspace(folder, results, found)


def find_directories(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Return {training key: run directory} of a folder of results."""
  found = {}
  for path in sorted((folder / RUNS).glob(f'*/{identity.CONFIG}')):
    key = keys.run_key(path.parent)
    if key not in found or is_finished(path.parent):
      found[key] = path.parent
  return found


def execute(
  evaluations: Sequence[Evaluation],
  workspace: Workspace,
  log: Log,
  on_done: Callable[[], None] = lambda: None,
) -> None:
  """Train and evaluate what the results lack, and gather it at once.

  `on_done` is called after each group of trainings.
  """
  missing = [one for one in evaluations if is_missing(one, workspace.results)]
  for group in group_seeds(distinct_trainings(missing)):
    train_missing(group, workspace, log)
    keys_of_group = {training.key for training in group}
    for evaluation in missing:
      training = evaluation.training
      if training.key in keys_of_group and not diverged_of(training, workspace):
        evaluate_missing(evaluation, workspace, log)
    on_done()


def is_missing(evaluation: Evaluation, results: Results) -> bool:
  """Return whether the results lack a reading of the evaluation."""
  return any(
    find(results, evaluation, reading) is None
    for reading in evaluation.readings
  )


def find(
  results: Results, evaluation: Evaluation, reading: Reading
) -> Found | None:
  """Return the results that hold the number of a reading, or None."""
  # Numbers of the server's model are stored with its view.
  view = reading.view if reading.measure in OF_SERVER else stored_name(reading)
  return results.find(evaluation.training.key, evaluation.key, view)


def run_path(training: Training, workspace: Workspace) -> pathlib.Path:
  """Return the directory of a training: that of its run, or a new one."""
  return workspace.found.get(training.key, workspace.runs / training.name)


def diverged_of(training: Training, workspace: Workspace) -> str:
  """Return the sentence of a training that diverged, or began with one; ''."""
  paths = (run_path(one, workspace) for one in training.chain)
  return next(filter(None, map(divergence.sentence_of, paths)), '')


def train_missing(
  group: Sequence[Training], workspace: Workspace, log: Log
) -> None:
  """Train the seeds of a config that are not finished, in one program."""
  todo = []
  for training in group:
    path = run_path(training, workspace)
    if sentence := diverged_of(training, workspace):
      log(
        f'{path.name} is not trained: it, or the run it begins with, diverged '
        f'before ({divergence.NAME} in the run directory; without this file '
        f'it is trained again). {sentence}'
      )
    elif not is_finished(path):
      # A stopped run continues with settings of its own.
      settings = settings_of(training, workspace, path)
      todo.append((build_experiment(settings, log), path))
  if todo:
    train_many(*zip(*todo, strict=True), log)
  for _, path in todo:
    if is_finished(path):
      workspace.results.add_run(path)


def evaluate_missing(
  evaluation: Evaluation, workspace: Workspace, log: Log
) -> None:
  """Compute the readings of a finished training that the results lack."""
  path = run_path(evaluation.training, workspace)
  workspace.results.add_run(path)
  readings = [
    reading
    for reading in evaluation.readings
    if find(workspace.results, evaluation, reading) is None
  ]
  if not readings:
    return
  names = ', '.join(stored_name(reading) for reading in readings)
  log(f'{path.name}: evaluation {names}')
  experiment = experiment_of(evaluation, workspace, log)
  evaluate_again(experiment, path, evaluation.key, readings, log)
  workspace.results.add_run(path)


def settings_of(
  training: Training, workspace: Workspace, path: pathlib.Path
) -> Settings:
  """Return the settings with which a training starts, or continues.

  A stopped run continues with its own: they may differ in fields that do not
  change the training. A new run gets the path of the run it starts from.
  """
  if (path / identity.CONFIG).is_file():
    return parse_config(run_dir.load_config(path)['config'])
  return with_init_from(training.settings, training, workspace)


def experiment_of(
  evaluation: Evaluation, workspace: Workspace, log: Log
) -> Experiment:
  """Return the experiment of a training, with other fields of evaluation."""
  settings = with_init_from(evaluation.settings, evaluation.training, workspace)
  return build_experiment(settings, log)


def with_init_from(
  settings: Settings, training: Training, workspace: Workspace
) -> Settings:
  """Return the settings with the path of the run at init_from."""
  if training.init_from is None:
    return settings
  return replace(
    settings, init_from=str(run_path(training.init_from, workspace))
  )

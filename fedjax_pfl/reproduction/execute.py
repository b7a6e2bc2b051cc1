"""Train and evaluate what the results lack; a stopped command can be repeated.

Finished runs are found by the content of their directories, and stopped ones
continue from their last checkpoint. A training that diverges ends alone: the
others go on, and it is not repeated (training/divergence.py).
"""

import pathlib
from collections.abc import Callable, Sequence

from fedjax_pfl.reproduction.compare import find
from fedjax_pfl.reproduction.evaluate_again import evaluate_again
from fedjax_pfl.reproduction.plan import (
  Evaluation,
  Training,
  distinct_trainings,
  group_seeds,
)
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.runs.run_dir import is_finished
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training import divergence
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train_many

Log = Callable[[str], None]


def execute(
  evaluations: Sequence[Evaluation],
  results: Results,
  log: Log,
  on_done: Callable[[], None] = lambda: None,
) -> None:
  """Train and evaluate what the results lack, and gather it at once.

  `on_done` is called after each group of trainings.
  """
  missing = [one for one in evaluations if is_missing(one, results)]
  for group in group_seeds(distinct_trainings(missing)):
    train_missing(group, results, log)
    keys_of_group = {training.key for training in group}
    for evaluation in missing:
      training = evaluation.training
      if training.key in keys_of_group and not diverged_of(training, results):
        evaluate_missing(evaluation, results, log)
    on_done()


def is_missing(evaluation: Evaluation, results: Results) -> bool:
  """Return whether the results lack a reading of the evaluation."""
  return any(
    find(results, evaluation, reading) is None
    for reading in evaluation.readings
  )


def run_path(training: Training, results: Results) -> pathlib.Path:
  """Return the directory of a training: that of its run, or a new one."""
  return results.path_of(training.key, training.name)


def diverged_of(training: Training, results: Results) -> str:
  """Return the sentence of a training that diverged, or began with one; ''."""
  paths = (run_path(one, results) for one in training.chain)
  return next(filter(None, map(divergence.sentence_of, paths)), '')


def train_missing(
  group: Sequence[Training], results: Results, log: Log
) -> None:
  """Train the seeds of a config that are not finished, in one program."""
  todo = []
  for training in group:
    path = run_path(training, results)
    if sentence := diverged_of(training, results):
      log(
        f'{path.name} is not trained: it, or the run it begins with, diverged '
        f'before ({divergence.NAME} in the run directory; without this file '
        f'it is trained again). {sentence}'
      )
    elif not is_finished(path):
      # A stopped run continues with settings of its own.
      settings = settings_of(training, results, path)
      todo.append((build_experiment(settings, log), path))
  if todo:
    train_many(*zip(*todo, strict=True), log)
  for _, path in todo:
    if is_finished(path):
      results.add_run(path)


def evaluate_missing(
  evaluation: Evaluation, results: Results, log: Log
) -> None:
  """Compute the readings of a finished training that the results lack."""
  path = run_path(evaluation.training, results)
  results.add_run(path)
  readings = [
    reading
    for reading in evaluation.readings
    if find(results, evaluation, reading) is None
  ]
  if not readings:
    return
  names = ', '.join(reading.stored_name for reading in readings)
  log(f'{path.name}: evaluation {names}')
  settings = with_init_from(evaluation.settings, evaluation.training, results)
  experiment = build_experiment(settings, log)
  evaluate_again(experiment, path, evaluation.key, readings, log)
  results.add_run(path)


def settings_of(
  training: Training, results: Results, path: pathlib.Path
) -> Settings:
  """Return the settings with which a training starts, or continues.

  A stopped run continues with its own: they may differ in fields that do not
  change the training. A new run gets the path of the run it starts from.
  """
  if (path / identity.CONFIG).is_file():
    return parse_config(run_dir.load_config(path)['config'])
  return with_init_from(training.settings, training, results)


def with_init_from(
  settings: Settings, training: Training, results: Results
) -> Settings:
  """Return the settings with the path of the run at init_from."""
  if training.init_from is None:
    return settings
  return replace(settings, init_from=str(run_path(training.init_from, results)))

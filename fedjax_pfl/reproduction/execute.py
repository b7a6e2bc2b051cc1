"""Train and evaluate what the results lack; a stopped command can be repeated.

Finished runs are found by the content of their directories, and stopped ones
continue from their last checkpoint. A training that diverges ends alone: the
others go on, and it is not repeated (training/divergence.py).
"""

import pathlib
from collections.abc import Callable, Sequence

from fedjax_pfl.reproduction.cells import Reading
from fedjax_pfl.reproduction.compare import find
from fedjax_pfl.reproduction.evaluate_again import evaluate_again
from fedjax_pfl.reproduction.plan import (
  Evaluation,
  Training,
  distinct_trainings,
  group_seeds,
)
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import checkpoint, identity, run_dir
from fedjax_pfl.settings import Settings, parse_config, replace
from fedjax_pfl.training import divergence, keys
from fedjax_pfl.training.build import Experiment, build_experiment
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
  missing = [one for one in evaluations if lacking(one, results)]
  for group in group_seeds(distinct_trainings(missing)):
    train_missing(group, results, log)
    of_group = {training.identity for training in group}
    for evaluation in missing:
      training = evaluation.training
      if training.identity in of_group and not results.diverged(training):
        evaluate_missing(evaluation, results, log)
    on_done()


def lacking(evaluation: Evaluation, results: Results) -> list[Reading]:
  """Return the readings of an evaluation that the results lack."""
  key = results.key_of(evaluation.training)
  return [
    reading
    for reading in evaluation.readings
    if find(results, key, evaluation.key, reading) is None
  ]


def is_trained(training: Training, results: Results) -> bool:
  """Return whether a run of the training is finished."""
  path = results.path_of(training)
  return path is not None and run_dir.is_finished(path)


def saved_round(training: Training, results: Results) -> int:
  """Return the round of the last checkpoint of a training; 0 without one."""
  path = results.path_of(training)
  steps = checkpoint.steps(path / 'checkpoints') if path else []
  return max(steps, default=0)


def train_missing(
  group: Sequence[Training], results: Results, log: Log
) -> None:
  """Train the seeds of a config that are not finished, in one program."""
  todo = []
  for training in group:
    if sentence := results.diverged(training):
      path = results.path_of(training)
      log(
        f'{path.name if path else training.settings.algorithm} is not trained: '
        f'it, or the run it begins with, diverged before ({divergence.NAME} in '
        f'the run directory; without this file it is trained again). {sentence}'
      )
    elif not is_trained(training, results):
      todo.append(_begin(training, results, log))
  if todo:
    train_many(*zip(*todo, strict=True), log)
  for _, path in todo:
    if (path / identity.CONFIG).is_file():
      results.add_run(path)


def evaluate_missing(
  evaluation: Evaluation, results: Results, log: Log
) -> None:
  """Compute the readings of a finished training that the results lack."""
  readings = lacking(evaluation, results)
  if not readings:
    return
  path = results.path_of(evaluation.training)
  names = ', '.join(reading.stored_name for reading in readings)
  log(f'{path.name}: evaluation {names}')
  settings = _with_start(evaluation.settings, evaluation.training, results)
  experiment = build_experiment(settings, log)
  evaluate_again(experiment, path, evaluation.key, readings, log)
  results.add_run(path)


def _begin(
  training: Training, results: Results, log: Log
) -> tuple[Experiment, pathlib.Path]:
  """Return the experiment of a training, and the directory of its run.

  A stopped run continues with its own settings: they may differ in fields that
  do not change the training.
  """
  if path := results.path_of(training):
    settings = parse_config(run_dir.load_config(path)['config'])
    return build_experiment(settings, log), path
  settings = _with_start(training.settings, training, results)
  experiment = build_experiment(settings, log)
  first = training.init_from
  start = results.key_of(first) if first else ''
  key = keys.training_key(settings, experiment.data_id, start)
  dataset = settings.data.dataset.replace('/', '_')  # emnist/byclass
  name = f'{settings.algorithm}_{dataset}_seed{settings.seed}_{key}'
  return experiment, results.paths.get(key, results.runs / name)


def _with_start(
  settings: Settings, training: Training, results: Results
) -> Settings:
  """Return the settings with the path of the run at init_from."""
  if training.init_from is None:
    return settings
  return replace(settings, init_from=str(results.path_of(training.init_from)))

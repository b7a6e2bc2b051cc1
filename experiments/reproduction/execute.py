"""Train and evaluate what the results lack; a stopped command can be repeated.

One training gives many published numbers: fine-tuned for one epoch or for
twenty, the body or the whole model, on other tests. Each evaluation of its last
models has a folder in the run directory:

  RUN/evaluations/<key>/config.json   the run's config, with fields replaced
                       clients.npz   per client: the scores of every reading
                       result.json   their summaries; written last
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.reproduction.cells import OF_CLASSES, Reading
from experiments.reproduction.id_ood import split_by_class
from experiments.reproduction.plan import (
  Evaluation,
  PlannedRun,
  distinct_trainings,
  group_seeds,
)
from experiments.reproduction.results import Results
from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.compare.plan import Planned
from fedjax_pfl.compare.train import name_of, train
from fedjax_pfl.core import progress
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.results.runs.folder import EVALUATIONS
from fedjax_pfl.runs import checkpoint, identity, run_dir
from fedjax_pfl.runs.client_scores import FOLDER, Clients, correct_of
from fedjax_pfl.settings import (
  RESUMABLE,
  Settings,
  defaults,
  replace,
  to_config,
)
from fedjax_pfl.training import keys
from fedjax_pfl.training.best_models import evaluate_finished
from fedjax_pfl.training.build import Experiment, build_experiment
from fedjax_pfl.training.program import Evaluator
from fedjax_pfl.training.state import random_streams, state_shapes


def execute(
  evaluations: Sequence[Evaluation],
  results: Results,
  on_done: Callable[[], None] = lambda: None,
) -> None:
  """Train and evaluate what the results lack, and gather it at once.

  `on_done` is called after each group of trainings.
  """
  missing = [x for x in evaluations if lacking(x, results)]
  for group in group_seeds(distinct_trainings(missing)):
    train_missing(group, results)
    of_group = {training.identity for training in group}
    for evaluation in missing:
      training = evaluation.training
      if training.identity in of_group and not results.diverged(training):
        evaluate_missing(evaluation, results)
    on_done()


def lacking(evaluation: Evaluation, results: Results) -> list[Reading]:
  """Return the readings of an evaluation that the results lack."""
  training = results.key_of(evaluation.training)
  return [
    reading
    for reading in evaluation.readings
    if not results.find(training, evaluation.key, reading.stored_name)
  ]


def what_is_left(
  evaluations: Sequence[Evaluation], results: Results
) -> tuple[str, list[Evaluation], list[PlannedRun]]:
  """Return 'done', 'diverged' or '', what is missing, and what is to train."""
  missing = [x for x in evaluations if lacking(x, results)]
  finite = [x for x in missing if not results.diverged(x.training)]
  if not finite:
    return 'diverged' if missing else 'done', [], []
  trainings = distinct_trainings(finite)
  return '', finite, [x for x in trainings if not is_trained(x, results)]


def is_trained(training: PlannedRun, results: Results) -> bool:
  path = results.path_of(training)
  return path is not None and run_dir.is_finished(path)


def saved_round(training: PlannedRun, results: Results) -> int:
  """Return the round of the last checkpoint of a training; 0 without one."""
  path = results.path_of(training)
  steps = checkpoint.steps(path / 'checkpoints') if path else []
  return max(steps, default=0)


def train_missing(group: Sequence[PlannedRun], results: Results) -> None:
  """Train the seeds of a config that are not finished, in one program."""
  plan, of_seed = [], {training.settings.seed: training for training in group}
  for training in group:
    first = training.init_from
    if first and (sentence := results.diverged(first)):
      progress.log(
        f'{training.settings.algorithm} is not trained: the run with which it '
        f'begins diverged. {sentence}'
      )
    elif not is_trained(training, results):
      settings = _with_start(training.settings, training, results)
      plan.append(Planned(settings, {}))

  def path_of(settings: Settings, data: str) -> Path:
    training = of_seed[settings.seed]
    if path := results.path_of(training):
      return path
    first, start = training.init_from, ''
    if first:
      start = keys.model_key(results.key_of(first), first.settings)
    key = keys.training_key(settings, data, start)
    return results.paths.get(key, results.runs / name_of(settings, key))

  for path in train(plan, path_of, progress.log):
    if (path / identity.CONFIG).is_file():
      results.add_run(path)


def evaluate_missing(evaluation: Evaluation, results: Results) -> None:
  """Write RUN/evaluations/<key> with the readings that the results lack.

  Of a finished training. Scores that are already in the folder are kept.
  """
  readings = lacking(evaluation, results)
  if not readings:
    return
  workdir = results.path_of(evaluation.training)
  names = ', '.join(reading.stored_name for reading in readings)
  progress.log(f'{workdir.name}: evaluation {names}')
  settings = _with_start(evaluation.settings, evaluation.training, results)
  experiment = build_experiment(settings, progress.log)
  began = time.perf_counter()
  scores = scores_of(experiment, workdir, readings)
  path, settings = workdir / EVALUATIONS / evaluation.key, experiment.settings
  path.mkdir(parents=True, exist_ok=True)
  run = run_dir.open_run(
    path,
    to_config(settings),
    resumable=RESUMABLE,
    defaults=defaults(),
    log=lambda text: None,
    data=experiment.data_id,
  )
  if run.result():
    scores = {**run_dir.load_clients(path).scores, **scores}
  ids, count = np.arange(settings.data.num_seen_clients), experiment.train.count
  run.write_clients(Clients(ids, count, scores))
  run.write_result(
    algorithm=settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=time.perf_counter() - began,
    views={name: summarise(score, count) for name, score in scores.items()},
  )
  run.close()
  results.add_run(workdir)


def _with_start(
  settings: Settings, training: PlannedRun, results: Results
) -> Settings:
  """Return the settings with the path of the run at init_from."""
  if training.init_from is None:
    return settings
  return replace(settings, init_from=str(results.path_of(training.init_from)))


def scores_of(
  experiment: Experiment, workdir: Path, readings: Sequence[Reading]
) -> dict[str, Scores]:
  """Return {stored name: scores [K]} of the last models of the run."""
  states = load_states(experiment, workdir, progress.log)
  key = random_streams(experiment.settings.seed)['evaluation']
  evaluator = Evaluator(experiment, key)
  last, scores = len(experiment.stages) - 1, {}
  if views := _views(readings, 'accuracy', 'pooled'):
    scores |= evaluator.clients(last, states, views)
  if views := _views(readings, *OF_CLASSES):
    splits = split_by_class(experiment, states, views, 'evaluation by class')
    for view, split in splits.items():
      pairs = zip(OF_CLASSES, split, strict=True)
      scores |= {f'{view}:{measure}': part for measure, part in pairs}
  before_last = experiment.rounds - experiment.stages[-1].rounds
  for view in _views(readings, 'best_round'):
    count = np.asarray(experiment.eval_data[1].count)
    correct = correct_of(workdir / FOLDER, before_last)[view]  # by round
    best = np.max([*correct.values()], axis=0)
    scores[f'{view}:best_round'] = Scores(best, count)
  if views := _views(readings, 'best_finished'):
    like = lambda step: {'kept': state_shapes(experiment, step).kept}
    folder = workdir / 'checkpoints'
    _, restored = checkpoint.restore(folder, like, progress.log, ignored='')
    finished = evaluate_finished(evaluator, restored['kept'])
    scores |= {f'{view}:best_finished': finished[view] for view in views}
  return scores


def _views(readings: Sequence[Reading], *measures: str) -> list[str]:
  views = (x.view for x in readings if x.measure in measures)
  return list(dict.fromkeys(views))

"""The end of a run: the last evaluation, its models, and its result."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.types import Scores
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.evaluation.test_selection import best_views
from fedjax_pfl.runs.run_dir import Run, load_metrics
from fedjax_pfl.training import multihost
from fedjax_pfl.training.best_models import evaluate_finished
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.global_evaluator import last_evaluations
from fedjax_pfl.training.model_export import ModelExport
from fedjax_pfl.training.seed_run import SeedRun
from fedjax_pfl.training.state import State, summarise_best
from fedjax_pfl.training.warm_start import model_digest


def finalize(seed_run: SeedRun) -> None:
  """Evaluate the last models; write models, clients.npz and result.json."""
  began = time.perf_counter()
  experiment, state = seed_run.experiment, seed_run.state
  models = ModelExport(experiment, seed_run.run)
  last, views = experiment.stages[-1], experiment.settings.evaluation.views
  scores = seed_run.evaluators.clients(last, state, views, models.add)
  finished = evaluate_finished(
    experiment, seed_run.evaluators.clients, last, state.test_best
  )
  of_server = seed_run.evaluators.global_model(last, state.server)
  if multihost.is_first():
    with atomic_files.writing(seed_run.run.path):
      models.save()
    seconds = float(state.seconds) + time.perf_counter() - began
    write_result(
      experiment, seed_run.run, scores, of_server, state, seconds, finished
    )
  seed_run.run.close()


def write_result(
  experiment: Experiment,
  run: Run,
  scores: dict[str, Scores],
  of_server: dict[str, Any],
  state: State,
  seconds: float,
  finished: Mapping[str, Scores] = {},
) -> None:
  """Write clients.npz, then result.json: the run is finished.

  `of_server` is the evaluation of the global model; {} without one; `finished`
  that of the best models, by view, where clients keep them.
  """
  settings, more = experiment.settings, {}
  if of_server:
    metrics = load_metrics(run.path) if experiment.rounds else []
    last = last_evaluations(metrics, experiment.stages[-1].name)
    more['global'] = {**of_server, 'last10': last}
  if families := best_views(scores, experiment.train.count):
    more['test_best_view'] = families
  if digest := model_digest(run.path):
    more['model'] = digest  # by which runs that start from it are recognised
  num_classes = experiment.dataset.num_classes
  run.write_clients(
    scores,
    np.arange(settings.data.num_clients),
    train_count=experiment.train.count,
    train_classes=label_counts_of_clients(experiment.train, num_classes),
    test_classes=label_counts_of_clients(experiment.eval_data[1], num_classes),
  )
  run.write_result(
    algorithm=settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=seconds,
    views={
      view: summarise(score, experiment.train.count)
      for view, score in scores.items()
    },
    test_best=summarise_best(
      state.test_best,
      experiment.eval_data[1].count,
      experiment.train.count,
      finished,
    ),
    **more,
  )

"""Evaluate the last models of a finished run with other settings.

One training gives many published numbers: fine-tuned for one epoch or for
twenty, the body or the whole model, on other tests. Each evaluation has a
folder in the run directory:

  RUN/evaluations/<key>/config.json   the run's config, with fields replaced
                       clients.npz   per client: the scores of every reading
                       result.json   their summaries; written last
"""

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedjax_pfl.analysis.id_ood import score_by_class
from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.core import progress
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.metrics import ClassScores
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.reproduction.cells import OF_BEST_ROUND, OF_CLASSES, Reading
from fedjax_pfl.reproduction.stored_runs import EVALUATIONS
from fedjax_pfl.runs import checkpoint, run_dir
from fedjax_pfl.settings import RESUMABLE, to_config
from fedjax_pfl.training.best_rounds import TestBest, evaluate_finished
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.evaluators import Evaluator
from fedjax_pfl.training.state import random_streams, state_shapes

Log = Callable[[str], None]


def evaluate_again(
  experiment: Experiment,
  workdir: pathlib.Path,
  key: str,
  readings: Sequence[Reading],
  log: Log,
) -> pathlib.Path:
  """Return RUN/evaluations/<key> with the scores of these readings.

  The experiment is that of the run, except for fields of evaluation. Scores
  that are already in the folder are kept.
  """
  began = time.perf_counter()
  scores = scores_of(experiment, workdir, readings, log)
  path, settings = workdir / EVALUATIONS / key, experiment.settings
  path.mkdir(parents=True, exist_ok=True)
  given = {'data': experiment.data_id, 'resumable': RESUMABLE}
  run = run_dir.open_run(
    path, to_config(settings), log=lambda text: None, **given
  )
  if run.status() == 'finished':
    scores = {**run_dir.load_clients(path).scores, **scores}
  count = experiment.train.count
  ids = np.arange(settings.data.num_seen_clients)
  run.write_clients(scores, ids, train_count=count)
  run.write_result(
    algorithm=settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=time.perf_counter() - began,
    views={name: summarise(score, count) for name, score in scores.items()},
  )
  run.close()
  return path


def scores_of(
  experiment: Experiment,
  workdir: pathlib.Path,
  readings: Sequence[Reading],
  log: Log,
) -> dict[str, Scores]:
  """Return {stored name: scores [K]} of the last models of the run."""
  server, clients = load_states(experiment, workdir, log)
  key = random_streams(experiment.settings.seed)['evaluation']
  evaluator = Evaluator(experiment, key)
  last, scores = len(experiment.stages) - 1, {}
  if views := _views(readings, 'accuracy'):
    scores |= evaluator.clients(last, (server, clients), views)
  if views := _views(readings, *OF_CLASSES):
    number = experiment.settings.data.num_seen_clients
    with progress.progress('evaluation by class', number, unit='client') as bar:
      by_class, owned = score_by_class(
        experiment, server, clients, views, key, bar.update
      )
    scores |= _split(by_class, owned)
  if _views(readings, *OF_BEST_ROUND):
    best = _test_best(experiment, workdir, log)
    count = np.asarray(experiment.eval_data[1].count)
    for view in _views(readings, 'best_round'):
      correct = np.maximum(best[view].each.correct, 0)
      scores[f'{view}:best_round'] = Scores(correct, count)
    if views := _views(readings, 'best_finished'):
      finished = evaluate_finished(evaluator, best)
      scores |= {f'{view}:best_finished': finished[view] for view in views}
  return scores


def _split(
  by_class: Mapping[str, ClassScores], owned: np.ndarray
) -> dict[str, Scores]:
  """Return the scores on own and on other classes, [K] of [K, Y]."""
  return {
    f'{view}:{measure}': Scores(
      np.sum(np.where(mask, score.correct, 0), -1),
      np.sum(np.where(mask, score.count, 0), -1),
    )
    for view, score in by_class.items()
    for measure, mask in zip(OF_CLASSES, (owned, ~owned), strict=True)
  }


def _test_best(
  experiment: Experiment, workdir: pathlib.Path, log: Log
) -> dict[str, TestBest]:
  """Return the best rounds that the newest checkpoint has."""
  _, restored = checkpoint.restore(
    workdir / 'checkpoints',
    lambda step: {'test_best': state_shapes(experiment, step).test_best},
    log,
    part=True,
  )
  return restored['test_best']


def _views(readings: Sequence[Reading], *measures: str) -> list[str]:
  names = [one.view for one in readings if one.measure in measures]
  return list(dict.fromkeys(names))

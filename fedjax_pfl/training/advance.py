"""From one stop of a run to the next: rounds, then what is due after them.

Due are, every so many rounds: an evaluation, a line of metrics, a checkpoint.
"""

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import divergence, round_metrics
from fedjax_pfl.training.best_rounds import (
  Chosen,
  choose,
  evaluate_and_keep,
  has_candidates,
  mean_accuracies,
  update_test_best,
)
from fedjax_pfl.training.round_metrics import Numbers
from fedjax_pfl.training.state import Training, make_call, save_state
from fedjax_pfl.training.views import candidate_views


class Cadence(NamedTuple):
  """After how many rounds a run logs, evaluates, and saves a checkpoint."""

  log: int
  evaluate: int
  save: int

  def next_stop(self, done: int, last: int) -> int:
    """Return the round up to which the next compiled call may run."""
    return min(last, *((done // every + 1) * every for every in self))


class Place(NamedTuple):
  """A stage among those of a run, and the rounds before and after it."""

  number: int
  stage: Stage
  first: int
  last: int


def cadence(settings: Settings, rounds: int) -> Cadence:
  """Return the cadence of a config; 0 means a choice that suits the run."""
  evaluate = settings.evaluation.eval_every or max(1, rounds // 16)
  # On a CPU a round takes seconds, and a dispatch costs nothing beside it.
  log = 1 if jax.default_backend() == 'cpu' else evaluate
  return Cadence(
    settings.system.log_every or log,
    evaluate,
    settings.system.checkpoint_every or evaluate,
  )


# ---- rounds ------------------------------------------------------------------


def advance(
  training: Training, place: Place, stop: int
) -> tuple[Training, Numbers]:
  """Return the run after round `stop`, and the numbers of its rounds.

  Raises Diverged where these are not finite.
  """
  began, settings = time.perf_counter(), training.experiment.settings
  program, stage, done = training.program, place.stage, training.done
  rounds_fn = program.rounds(place.number, program.numbers_of(settings))
  call = make_call(training, stage, stop)
  server, clients, metrics = rounds_fn(call)
  cohorts = np.asarray(call.cohorts)
  excludes = settings.system.on_divergence == 'exclude'
  may_exclude = excludes and not stage.full_participation
  found = divergence.find_divergence(cohorts, metrics, may_exclude)
  if found:
    raise divergence.divergence_error(training, stage, stop, found)
  seconds = time.perf_counter() - began
  counts = np.asarray(call.data.count)
  sizes = program.message_bytes(place.number)
  initial = len(counts) * sizes.initial if done == place.first else 0
  numbers = {
    'stage': stage.name,
    **round_metrics.training_numbers(
      metrics, counts[cohorts], settings.training.batch_size, seconds
    ),
    **round_metrics.message_bytes(metrics, sizes, initial),
  }
  if settings.training.dropout_rate:
    numbers |= round_metrics.dropped_clients(metrics)
  if excludes:
    numbers |= round_metrics.excluded_clients(metrics, cohorts, done)
  state = training.state._replace(
    server=server, clients=clients, seconds=training.state.seconds + seconds
  )
  return training._replace(state=state, done=stop), numbers


# ---- what is due after them --------------------------------------------------


def record(
  training: Training, numbers: Numbers, place: Place, every: Cadence
) -> Training:
  """Return the run, evaluated, logged and saved where that is due."""
  done, experiment = training.done, training.experiment
  if done % every.evaluate == 0 or done == experiment.rounds:
    training, more = evaluate(training, place)
    numbers = {**numbers, **more}
  training.run.log(round=done, **numbers)
  if done % every.save == 0 or done == place.last:
    save_state(training)
  return training


def evaluate_start(training: Training, place: Place) -> Training:
  """Return the run, evaluated once more if its stage has just begun.

  Where clients keep models of the stage: those with which it begins are
  candidates.
  """
  keep_best = place.stage.keep_best
  if training.done != place.first or keep_best is None:
    return training
  return _evaluate_views(training, place, [keep_best.view])[0]


def evaluate(training: Training, place: Place) -> tuple[Training, Numbers]:
  """Return the run after an evaluation, and its numbers.

  A stage is evaluated in those of `eval_views` that it has; the last has all.
  """
  experiment, stage = training.experiment, place.stage
  views = experiment.settings.evaluation.eval_views
  if stage is not experiment.stages[-1]:
    names = view_names(stage.algorithm, *training.states, experiment.train)
    views = [view for view in views if view in names]
  training, numbers = _evaluate_views(training, place, views)
  began = time.perf_counter()
  of_server = training.evaluator.global_model(
    place.number, training.state.server
  )
  numbers |= {
    f'global/{name}': number
    for name, number in of_server.items()
    if name != 'count'
  }
  chosen, on_validation = validate(training, place.number)
  seconds = training.state.seconds + time.perf_counter() - began
  state = training.state._replace(seconds=seconds, chosen=chosen)
  return training._replace(state=state), {**numbers, **on_validation}


def _evaluate_views(
  training: Training, place: Place, views: Any
) -> tuple[Training, Numbers]:
  """Return the run with the best rounds in these views, and accuracies."""
  began, state = time.perf_counter(), training.state
  scores, models = evaluate_and_keep(
    training.evaluator, place.number, training.states, views
  )
  best = update_test_best(state.test_best, scores, training.done, models)
  numbers = {}
  for view, score in scores.items():
    summary = summarise(score, training.experiment.train.count)
    numbers[f'{view}/accuracy'] = summary['mean']
    numbers[f'{view}/pooled'] = summary['pooled']
    numbers |= {f'{view}/{name}': summary[name] for name in score.own or {}}
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=best)
  return training._replace(state=state), numbers


def validate(
  training: Training, number: int
) -> tuple[Chosen | tuple[()], Numbers]:
  """Return the choice after this round, and its accuracies on validation."""
  experiment, chosen = training.experiment, training.state.chosen
  if not has_candidates(experiment, experiment.stages[number]):
    return chosen, {}
  views = candidate_views(experiment.settings)
  scores = training.evaluator.validation(number, training.states, views)
  means = mean_accuracies(scores, experiment.train.count)
  chosen = choose(
    *(chosen, means, training.done, *training.states, experiment.placement)
  )
  return chosen, {f'validation/{view}': means[view] for view in views}

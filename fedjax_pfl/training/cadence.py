"""What a run does every so many rounds: evaluate, log, save a checkpoint."""

import time
from typing import NamedTuple

import jax

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.best_rounds import (
  Chosen,
  choose,
  evaluate_and_keep,
  has_candidates,
  mean_accuracies,
  update_test_best,
)
from fedjax_pfl.training.evaluators import accuracies
from fedjax_pfl.training.round_metrics import Numbers
from fedjax_pfl.training.seed_run import SeedRun
from fedjax_pfl.training.state import save_state
from fedjax_pfl.training.views import candidate_views


class Cadence(NamedTuple):
  """After how many rounds a run logs, evaluates, and saves a checkpoint."""

  log: int
  evaluate: int
  save: int

  def next_stop(self, done: int, last: int) -> int:
    """Return the round up to which the next compiled call may run."""
    return min(last, *((done // every + 1) * every for every in self))


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


def record(
  seed_run: SeedRun, numbers: Numbers, stage: Stage, last: int, every: Cadence
) -> SeedRun:
  """Return the seed run, evaluated, logged and saved where that is due.

  `last` is the last round of the stage.
  """
  done, rounds = seed_run.done, seed_run.experiment.rounds
  if done % every.evaluate == 0 or done == rounds:
    seed_run, accuracy = evaluate(seed_run, stage)
    numbers = {**numbers, **accuracy}
  seed_run.run.log(round=done, **numbers)
  if done % every.save == 0 or done == last:
    save_state(seed_run.experiment, seed_run.run, seed_run.state, done)
  return seed_run


def evaluate_start(seed_run: SeedRun, stage: Stage, first: int) -> SeedRun:
  """Return the seed run, evaluated once more if its stage has just begun.

  Where clients keep models of the stage, which begins after round `first`:
  those with which it begins are candidates.
  """
  if seed_run.done != first or stage.keep_best is None:
    return seed_run
  began, state = time.perf_counter(), seed_run.state
  scores, models = evaluate_and_keep(
    seed_run.evaluators.clients,
    stage,
    (state.server, state.clients),
    [stage.keep_best.view],
  )
  test_best = update_test_best(state.test_best, scores, first, models)
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=test_best)
  return seed_run._replace(state=state)


def evaluate(seed_run: SeedRun, stage: Stage) -> tuple[SeedRun, Numbers]:
  """Return the seed run after an evaluation, and its numbers.

  A stage is evaluated in those of `eval_views` that it has; the last has all.
  """
  began = time.perf_counter()
  experiment, state = seed_run.experiment, seed_run.state
  views = experiment.settings.evaluation.eval_views
  if stage is not experiment.stages[-1]:
    names = view_names(
      stage.algorithm, state.server, state.clients, experiment.train
    )
    views = [view for view in views if view in names]
  scores, models = evaluate_and_keep(
    seed_run.evaluators.clients, stage, (state.server, state.clients), views
  )
  test_best = update_test_best(state.test_best, scores, seed_run.done, models)
  numbers = accuracies(scores, experiment.train.count)
  of_server = seed_run.evaluators.global_model(stage, state.server)
  numbers |= {
    f'global/{name}': number
    for name, number in of_server.items()
    if name != 'count'
  }
  chosen, on_validation = validate(seed_run, stage)
  numbers |= on_validation
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=test_best, chosen=chosen)
  return seed_run._replace(state=state), numbers


def validate(
  seed_run: SeedRun, stage: Stage
) -> tuple[Chosen | tuple[()], Numbers]:
  """Return the choice after this round, and its accuracies on validation."""
  experiment, state = seed_run.experiment, seed_run.state
  if not has_candidates(experiment, stage):
    return state.chosen, {}
  views = candidate_views(experiment.settings)
  scores = seed_run.evaluators.validation(
    stage, state.server, state.clients, views
  )
  means = mean_accuracies(scores, experiment.train.count)
  chosen = choose(
    state.chosen, means, seed_run.done, state.server, state.clients
  )
  return chosen, {f'validation/{view}': means[view] for view in views}

"""From one stop of a run to the next: rounds, then what is due after them.

Due are, every so many rounds: an evaluation, a line of metrics, a checkpoint.
"""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.federated.communication import Communication
from fedjax_pfl.federated.failures import (
  FINITE,
  HAS_SENT,
  JOINED,
  SERVER_FINITE,
)
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import divergence
from fedjax_pfl.training.best_rounds import choose, evaluate_and_keep
from fedjax_pfl.training.state import Place, Training, cohorts_of, save_state

Numbers = dict[str, Any]  # of a line of metrics.jsonl
Metrics = dict[str, np.ndarray]  # of a call: {name: [T, C]}
WHO = FINITE, HAS_SENT, JOINED, SERVER_FINITE  # metrics that are no numbers


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


# ---- rounds ------------------------------------------------------------------


def advance(
  training: Training, place: Place, stop: int
) -> tuple[Training, Numbers]:
  """Return the run after round `stop`, and the numbers of its rounds.

  Raises Diverged where these are not finite.
  """
  began, settings = time.perf_counter(), training.experiment.settings
  cohorts, data = cohorts_of(training, place.stage, stop), training.data
  args = *training.states, cohorts, data, training.keys['rounds']
  *states, metrics = training.program.rounds(place.number, settings, *args)
  cohorts = np.asarray(cohorts)
  divergence.check_finite(training, place.stage, stop, cohorts, metrics)
  seconds = time.perf_counter() - began
  everyone = np.ones_like(metrics[FINITE])  # where nobody may fail
  metrics = {HAS_SENT: everyone, JOINED: everyone, **metrics}
  counts = np.asarray(data.count)
  sizes = training.program.message_bytes(place.number)
  to_all = len(counts) if training.done == place.first else 0
  numbers = {
    'stage': place.stage.name,
    **mean_metrics(metrics, counts[cohorts]),
    'images_per_second': num_images(
      metrics['num_steps'], counts[cohorts], settings.training.batch_size
    )
    / seconds,
    **message_bytes(metrics, sizes, to_all),
  }
  own, missing = settings.training, metrics[JOINED] & ~metrics[HAS_SENT]
  may_drop = own.dropout_rate or own.deadline
  if may_drop and not place.stage.full_participation:
    numbers['dropped'] = int((metrics[FINITE] & missing).sum())
  if settings.system.on_divergence == 'exclude':
    numbers |= excluded_clients(metrics, cohorts, training.done)
  server, clients = states
  state = training.state._replace(
    server=server, clients=clients, seconds=training.state.seconds + seconds
  )
  if timing := training.experiment.timing:
    numbers['sim_seconds'] = timing.advance(
      float(state.sim_seconds), stop, cohorts, metrics['num_steps'], missing
    )
    state = state._replace(sim_seconds=np.array(numbers['sim_seconds']))
  return training._replace(state=state, done=stop), numbers


def mean_metrics(metrics: Metrics, counts: np.ndarray) -> dict[str, float]:
  """Return the means of the scalars over those who trained and sent [T, C].

  `counts` [T, C] are examples. NaN where nobody who trained sent anything;
  where no client trained, all count: their means are 0.
  """
  trained = counts > 0
  used = trained & metrics[HAS_SENT] if trained.any() else ~trained
  return {
    name: float(np.mean(values[used])) if used.any() else math.nan
    for name, values in metrics.items()
    if values.ndim == 2 and name not in WHO
  }


def num_images(
  num_steps: np.ndarray, counts: np.ndarray, batch_size: int
) -> float:
  """Return the images in so many steps [T, C].

    images = e n + r B,   steps = e ceil(n / B) + r

  The last batch of an epoch may be smaller; r steps end before it.
  """
  batches = np.maximum(-(-counts // batch_size), 1)
  epochs, more = np.divmod(num_steps, batches)
  return float(np.sum(epochs * counts + more * batch_size))


def message_bytes(
  metrics: Metrics, sizes: Communication, to_all: int
) -> dict[str, int]:
  """Return the bytes that cross the network in the rounds of a call.

  With the first rounds of a stage goes a broadcast to all clients. A client
  that fails, or is excluded, has downloaded, and uploads nothing.
  """
  joined, sent = (int(metrics[name].sum()) for name in (JOINED, HAS_SENT))
  return {
    'bytes_down': joined * sizes.down + to_all * sizes.initial,
    'bytes_up': sent * sizes.up,
  }


def excluded_clients(
  metrics: Metrics, cohorts: np.ndarray, done: int
) -> Numbers:
  """Return and log who was excluded: how many, and pairs [round, client]."""
  pairs = []
  for number, (cohort, finite) in enumerate(
    zip(cohorts, metrics[FINITE], strict=True), done + 1
  ):
    ids = cohort[~finite].tolist()
    pairs += [[number, client] for client in ids]
    if ids:
      progress.log(
        f'Round {number}: excluded{divergence.name_clients(ids)}, where the '
        'loss, the state or the upload is NaN or infinite.'
      )
  numbers = {'excluded': len(pairs)}
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers


# ---- what is due after them --------------------------------------------------


def record(
  training: Training, numbers: Numbers, place: Place, every: Cadence
) -> Training:
  """Return the run, evaluated, logged and saved where that is due."""
  done = training.done
  if done % every.evaluate == 0 or done == training.experiment.rounds:
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
  return evaluate(training, place, [keep_best.view])[0]


def evaluate(
  training: Training, place: Place, only: Sequence[str] = ()
) -> tuple[Training, Numbers]:
  """Return the run after an evaluation, and its numbers.

  A stage is evaluated in those of `eval_views` that it has; the last has all.
  With `only` it is evaluated in these views, and nothing else is.
  """
  began, number, state = time.perf_counter(), place.number, training.state
  experiment, evaluator = training.experiment, training.evaluator
  views, stage = only or experiment.settings.evaluation.eval_views, place.stage
  if not only and stage is not experiment.stages[-1]:
    names = view_names(stage.algorithm, *training.states, experiment.train)
    views = [view for view in views if view in names]
  done, chosen = training.done, state.chosen
  own = number, training.states, views, state.test_best, done
  scores, best = evaluate_and_keep(evaluator, *own)
  numbers = {}
  if experiment.privacy:
    numbers['epsilon'] = experiment.privacy.spent(done)
  for view, score in scores.items():
    summary = summarise(score, experiment.train.count)
    numbers[f'{view}/accuracy'] = summary['mean']
    numbers[f'{view}/pooled'] = summary['pooled']
    numbers |= {f'{view}/{name}': summary[name] for name in score.own or {}}
  if not only:
    of_server = evaluator.global_model(number, state.server)
    of_server.pop('count', None)
    numbers |= {f'global/{name}': own for name, own in of_server.items()}
    chosen, more = choose(evaluator, chosen, number, training.states, done)
    numbers |= more
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, test_best=best, chosen=chosen)
  return training._replace(state=state), numbers

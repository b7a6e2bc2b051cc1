"""The loop of a run: stages x rounds, from one stop to the next."""

import contextlib
import math
import os
import time
from collections.abc import Sequence
from concurrent import futures
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_pfl.around.aggregation import honest, left_out
from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import (
  FINITE,
  HAS_SENT,
  JOINED,
  SERVER_FINITE,
  Metrics,
)
from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.models import registry
from fedjax_pfl.runs.client_scores import name_of
from fedjax_pfl.settings import RESUMABLE, Settings, defaults, to_config
from fedjax_pfl.training import (
  best_models,
  compile_cache,
  divergence,
  memory_estimate,
  multihost,
)
from fedjax_pfl.training.build import Experiment, placed_as_started
from fedjax_pfl.training.finalize import finalize
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.signals import Stopped, catch_signals
from fedjax_pfl.training.state import (
  Phase,
  Training,
  calls,
  cohorts_fn,
  phases,
  save_state,
  start_stage,
  start_training,
)

WHO = FINITE, HAS_SENT, JOINED, SERVER_FINITE  # metrics that are no numbers


def train(
  experiment: Experiment, workdir: str, program: Program | None = None
) -> dict[str, Any]:
  """Run the experiment in a directory, or continue it; return its result.

  A run that was stopped continues after its last checkpoint, with the bits of
  an unbroken one. A finished run is not changed.

  Args:
    experiment: what `build_experiment` returns.
    workdir: the run directory: new, empty, or of the same experiment.
    program: the compiled functions, which several runs share in `train_many`.

  Returns:
    result.json: 'views' has the summary of every view, 'seconds' the time.

  >>> import tempfile
  >>> experiment = pfl.build_experiment({
  ...   'dataset': 'digits', 'model': 'convnet3', 'num_clients': 4,
  ...   'max_train_examples': 80, 'rounds': 1, 'local_epochs': 1,
  ...   'batch_size': 20, 'views': ('initial',), 'eval_views': (),
  ... })
  >>> result = pfl.train(experiment, tempfile.mkdtemp())
  compiling the rounds of fedavg
  round 1/1...
  >>> result['status'], result['rounds'], list(result['views'])
  ('finished', 1, ['initial'])
  """
  workdir = os.path.expanduser(workdir)
  if program is None:
    compile_cache.cache_unless_set()
    experiment = placed_as_started(experiment, workdir, progress.log)
    memory_estimate.check_room(experiment)
    program = Program(experiment)
  config = to_config(experiment.settings)
  known = [config | {'data_dir': ''}, experiment.data_id, jax.__version__]
  multihost.check_alike('config', known)
  opened = multihost.open_run(
    workdir,
    config,
    data=experiment.data_id,
    log=progress.log,
    resumable=RESUMABLE,
    defaults=defaults(),
    tracker=experiment.settings.system.tracker,
    num_devices=experiment.placement.num_devices,
  )
  with contextlib.closing(opened) as run:
    if run.result():
      progress.log(f'{run.path} is finished: nothing to do.')
    else:
      finalize(run_rounds(start_training(experiment, run, program)))
    run.erase_secret()
    return run.result()


def run_rounds(training: Training) -> Training:
  """Return the run after its last round."""
  experiment, done = training.experiment, training.done
  program, rounds = training.program, experiment.rounds
  every = cadence(experiment.settings, rounds)
  if devices := experiment.placement.describe():
    progress.log(devices)
  if 0 < done < rounds:
    progress.log(f'Continuing after round {done} of {rounds}.')
  shown = {'start': done, 'waits': jax.process_count() > 1}
  with (
    catch_signals() as signal_fn,
    progress.progress('training', rounds, **shown) as bar,
    futures.ThreadPoolExecutor(1) as thread,
  ):
    for phase in phases(experiment.stages):
      training = begin_stage(training, phase)
      draw_fn = partial(thread.submit, cohorts_fn(training, phase))
      stops = every.stops(training.done, phase.last)
      for stop, (cohorts, *ahead) in calls(draw_fn, training.done, stops):
        began = times()
        rounds_fn = program.rounds(phase.number, training.state.server)
        *states, metrics = rounds_fn(
          training.evaluator.numbers,
          *training.states,
          cohorts,
          training.data,
          training.rounds_key(phase),
          *ahead,
        )
        metrics = experiment.placement.whole(metrics)
        metrics = jax.tree.map(np.asarray, metrics)  # waits
        took = times() - began
        training, numbers = after_rounds(
          training, phase, stop, states, cohorts, metrics, took
        )
        speed = {name: numbers[name] for name in ('loss', 'images_per_second')}
        bar.update(stop, **speed)
        training = record(training, numbers, phase, every)
        stop_if_asked(training, signal_fn())
  return training


def begin_stage(training: Training, phase: Phase) -> Training:
  """Return the run as the stage starts or continues.

  The line of round 0 has the model before training. The models that clients may
  keep are evaluated as each stage starts. A run of no round is saved: exports
  and analyses read checkpoints.
  """
  training = start_stage(training, phase)
  is_new = training.run.last_checkpoint() is None and not phase.number
  is_new &= phase.last > 0
  views = views_on_the_way(training, phase) if is_new else []
  if training.state.kept and best_models.KEPT_VIEW not in views:
    views = [*views, best_models.KEPT_VIEW]
  # That of several stages would continue from the first: `state_shapes`.
  is_all = not phase.last and len(training.experiment.stages) == 1
  if training.done == phase.first and (views or is_all):
    training, numbers = evaluate(training, phase, views)
    if is_new:
      training.run.log(round=0, stage=phase.stage.name, **numbers)
  if is_all:
    save_state(training)
  return training


def views_on_the_way(training: Training, phase: Phase) -> Sequence[str]:
  """Return those of `eval_views` that the stage has; the last has all."""
  experiment, stage = training.experiment, phase.stage
  views = experiment.settings.evaluation.eval_views
  if stage is experiment.stages[-1]:
    return views
  names = view_names(stage.algorithm, *training.states, experiment.train)
  return [view for view in views if view in names]


def stop_if_asked(training: Training, number: int) -> None:
  """Raise Stopped, with a checkpoint, if a process has got this signal."""
  if number := multihost.any_of(number):
    done = training.done
    if training.run.last_checkpoint() != done:
      save_state(training)
    progress.log(f'Saved after round {done}; the same command continues.')
    # Only the first process writes: the end of another might end it.
    multihost.any_of(0)
    raise Stopped(number, logged=True)


class Cadence(NamedTuple):
  """After how many rounds a run logs, evaluates, and saves a checkpoint."""

  log: int
  evaluate: int
  save: int

  def stops(self, done: int, last: int) -> list[int]:
    """Return the rounds up to which the compiled calls after `done` run."""
    rounds = range(done + 1, last + 1)
    is_stop = lambda n: n == last or not all(n % every for every in self)
    return [*filter(is_stop, rounds)]


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


def times() -> np.ndarray:
  """Return the clock, and the seconds of compilation so far."""
  return np.array([time.perf_counter(), progress.compiled_seconds()])


def after_rounds(
  training: Training,
  phase: Phase,
  stop: int,
  states: Sequence[PyTree],
  cohorts: Array,
  metrics: Metrics,
  took: np.ndarray,
) -> tuple[Training, dict[str, Any]]:
  """Return the run after round `stop`, and its numbers; or raise Diverged."""
  experiment, stage = training.experiment, phase.stage
  settings, privacy = experiment.settings, experiment.privacy
  cohorts = np.asarray(cohorts)
  divergence.check_finite(training, stage, stop, cohorts, metrics)
  seconds, compiled = took
  model = settings.model
  text = registry.advice(
    model.name, model.conv_impl, model.precision, seconds=compiled
  )
  if text:
    progress.log(text)
  everyone = np.ones_like(metrics[FINITE])  # where nobody may fail
  metrics = {HAS_SENT: everyone, JOINED: everyone, **metrics}
  counts = np.asarray(training.data.count)  # [K]
  sizes = training.program.message_bytes[phase.number]
  to_all = len(counts) if training.done == phase.first else 0
  # Who fails, or is excluded, has downloaded, and uploads nothing.
  joined, sent = metrics[JOINED].sum(), metrics[HAS_SENT].sum()
  joined, sent = privacy.traffic(phase.number, len(cohorts), joined, sent)
  steps, batch_size = metrics['num_steps'], settings.train.batch_size
  images = num_images(steps, counts[cohorts], batch_size)
  numbers = {
    'stage': stage.name,
    **mean_metrics(metrics, counts[cohorts]),
    'images_per_second': images / max(seconds - compiled, 1e-6),
    'bytes_down': round(joined * sizes.down) + to_all * sizes.initial,
    'bytes_up': round(sent * sizes.up),
  }
  missing = metrics[JOINED] & ~metrics[HAS_SENT]
  may_fail = settings.failures.dropout_rate or settings.speeds.deadline
  if may_fail and not (privacy.is_private or stage.full_participation):
    numbers['dropped'] = int((metrics[FINITE] & missing).sum())
  if privacy.is_private or settings.failures.on_divergence == 'exclude':
    numbers |= divergence.excluded_clients(
      metrics, cohorts, training.done, privacy.is_private
    )
  (server, clients), state = states, training.state
  numbers |= left_out(server)
  seconds += state.seconds
  state = state._replace(server=server, clients=clients, seconds=seconds)
  if timing := experiment.timing:
    so_far = float(state.sim_seconds)
    so_far = timing.advance(so_far, stop, cohorts, steps, missing)
    numbers['sim_seconds'] = so_far
    state = state._replace(sim_seconds=np.array(so_far))
  training = training._replace(state=state, done=stop, validation={})
  return training, numbers


def mean_metrics(metrics: Metrics, counts: np.ndarray) -> dict[str, float]:
  """Return the means over those who trained and sent [T, C].

  `counts` [T, C] are examples. NaN where nobody who trained sent anything;
  where no client trained, all count: their means are 0.
  """
  trained = counts > 0
  used = trained & metrics[HAS_SENT] if trained.any() else ~trained
  return {
    name: float(np.mean(values[used])) if used.any() else math.nan
    for name, values in metrics.items()
    if name not in WHO
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


def record(
  training: Training, numbers: dict[str, Any], phase: Phase, every: Cadence
) -> Training:
  """Return the run, evaluated, logged and saved where that is due."""
  done, rounds = training.done, training.experiment.rounds
  if done % every.evaluate == 0 or done == rounds:
    views = views_on_the_way(training, phase)
    training, more = evaluate(training, phase, views)
    numbers = {**numbers, **more}
  training.run.log(round=done, **numbers)
  if done % every.save == 0 or done == phase.last:
    save_state(training)
  return training


def evaluate(
  training: Training, phase: Phase, views: Sequence[str]
) -> tuple[Training, dict[str, Any]]:
  """Return the run after an evaluation in these views, and its numbers.

  Validation may choose a round, or the start of a stage without rounds.
  """
  began, number, state = time.perf_counter(), phase.number, training.state
  experiment, evaluator = training.experiment, training.evaluator
  measure = experiment.measure
  scores, kept = best_models.evaluate(
    evaluator, number, training.states, views, state.kept
  )
  numbers: dict[str, Any] = experiment.privacy.spent(training.done)
  count = honest(state.server, experiment.train.count)
  for view, score in scores.items():
    summary = summarise(score, count, measure.sign)
    numbers[f'{view}/{measure.name}'] = summary['mean']
    numbers[f'{view}/pooled'] = summary['pooled']
    numbers |= {f'{view}/{name}': summary[name] for name in score.own or {}}
  of_server = evaluator.global_model(number, state.server)
  of_server.pop('count', None)
  numbers |= {f'global/{name}': value for name, value in of_server.items()}
  chosen, validation, means = state.chosen, {}, {}
  if training.done > phase.first or phase.first == phase.last:
    chosen, validation, means = best_models.choose(
      evaluator, chosen, number, training.states, training.done
    )
  stored = scores | validation
  if training.done == phase.first < phase.last:  # no choice before training
    names = {best_models.KEPT_VIEW} if kept else set()
    stored = {name: stored[name] for name in names & {*stored}}
  if stored:
    name = name_of(training.done, phase.first)
    training.run.write_scores(name, stored)
  seconds = state.seconds + time.perf_counter() - began
  state = state._replace(seconds=seconds, kept=kept, chosen=chosen)
  training = training._replace(state=state, validation=validation)
  return training, numbers | means

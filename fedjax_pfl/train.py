"""The run: stages x rounds, compiled; logged, evaluated, saved, resumed.

The only place with clocks and files. What a resumed run needs is the last
checkpoint (state.py); every random number follows from the seed and the round.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl import console, traffic
from fedjax_pfl.algorithm import Client, Server, Stage, as_stored
from fedjax_pfl.engine import make_round, make_rounds, sample_cohorts
from fedjax_pfl.errors import bad_input
from fedjax_pfl.evaluate import view_names
from fedjax_pfl.experiment import Experiment
from fedjax_pfl.judging import Judges, accuracies, make_judges
from fedjax_pfl.keep import Models
from fedjax_pfl.oracle import best_views
from fedjax_pfl.report.class_counts import class_counts
from fedjax_pfl.report.summary import summarise
from fedjax_pfl.state import (
  State,
  enter,
  first_state,
  fold_best,
  stage_bounds,
  summarise_best,
)
from fedjax_pfl.store import Run, load_metrics, open_run
from fedjax_pfl.types import Array, ClientData, Key, Scores
from fedjax_pfl.whole import last_ones

# One word a stream of random numbers; their order is part of every result.
STREAMS = ('states', 'cohorts', 'rounds', 'evaluation')


class Cadence(NamedTuple):
  """After how many rounds what is done."""

  log: int
  evaluate: int
  save: int

  def next_stop(self, done: int, last: int) -> int:
    """Return the round up to which the next compiled call may run."""
    return min(last, *((done // every + 1) * every for every in self))


def train(experiment: Experiment, workdir: str) -> dict[str, Any]:
  """Run or continue the experiment in its directory; return result.json.

  A finished run says so and does nothing.
  """
  settings = experiment.settings
  run = open_run(workdir, settings, data=experiment.data_id, say=console.say)
  if run.status() == 'finished':
    console.say(f'{workdir} is finished: nothing to do.')
    return run.result()
  keys = random_streams(settings['seed'])
  judges = make_judges(experiment, keys['evaluation'])
  with jax.debug_nans(settings['debug']):
    state = run_rounds(experiment, run, keys, judges)
    began = time.perf_counter()
    models = Models(experiment, run)
    last = experiment.stages[-1]
    scores = judges.clients(last, state, settings['views'], models.keep)
    whole = judges.whole(last, state.server)
  models.save()
  seconds = float(state.seconds) + time.perf_counter() - began
  write_result(experiment, run, scores, whole, state, seconds)
  run.close()
  return run.result()


def random_streams(seed: int) -> dict[str, Key]:
  """Return the key of every stream of random numbers of a run."""
  keys = jax.random.split(jax.random.key(seed), len(STREAMS))
  return dict(zip(STREAMS, keys, strict=True))


def cadence(settings: dict[str, Any], rounds: int) -> Cadence:
  """Return the cadence of a config; 0 means a choice that suits the run."""
  evaluate = settings['eval_every'] or max(1, rounds // 16)
  # On a CPU a round takes seconds, and a dispatch costs nothing beside it.
  log = 1 if jax.default_backend() == 'cpu' else evaluate
  return Cadence(
    settings['log_every'] or log,
    evaluate,
    settings['checkpoint_every'] or evaluate,
  )


def run_rounds(
  experiment: Experiment, run: Run, keys: dict[str, Key], judges: Judges
) -> State:
  """Return the state after the last round, continuing where the run is."""
  state, done = first_state(experiment, run, keys['states'])
  every = cadence(experiment.settings, experiment.rounds)
  with console.progress('training', experiment.rounds, start=done) as bar:
    for stage, first, last in stage_bounds(experiment.stages):
      if done == first and stage is not experiment.stages[0]:
        state = enter(experiment, stage, state)
      if done >= last:
        continue
      if stage.note:
        console.say(stage.note)
      data = stage.prepare(state.server, experiment.train)
      advance_fn = make_advance(experiment, stage, keys, data, first)
      while done < last:
        stop = every.next_stop(done, last)
        state, numbers = advance_fn(state, done, stop)
        check_finite(state.server, numbers, done, stop, stage, run)
        done = stop
        bar.update(
          done,
          loss=numbers['loss'],
          images_per_second=numbers['images_per_second'],
        )
        if done % every.evaluate == 0 or done == experiment.rounds:
          state, more = judged(experiment, stage, state, done, judges)
          numbers |= more
        run.log(round=done, **numbers)
        if done % every.save == 0 or done == last:
          run.save_checkpoint(done, state)
  return state


def judged(
  experiment: Experiment,
  stage: Stage,
  state: State,
  done: int,
  judges: Judges,
) -> tuple[State, dict[str, float]]:
  """Return the state after an evaluation, and its numbers.

  A stage is judged by those of `eval_views` that it has; the last has all.
  """
  began = time.perf_counter()
  states, data = (state.server, state.clients), experiment.train
  views = experiment.settings['eval_views']
  if stage is not experiment.stages[-1]:
    names = view_names(stage.algorithm, *states, data)
    views = [view for view in views if view in names]
  scores = judges.clients(stage, state, views)
  test_best = fold_best(state.test_best, scores, done)
  numbers = accuracies(scores, experiment.train.count)
  whole = judges.whole(stage, state.server)
  numbers |= {
    f'global/{name}': number
    for name, number in whole.items()
    if name != 'count'
  }
  took = time.perf_counter() - began
  return State(*states, state.seconds + took, test_best), numbers


def make_advance(
  experiment: Experiment,
  stage: Stage,
  keys: dict[str, Key],
  train: ClientData,
  first: int,
) -> Callable[[State, int, int], tuple[State, dict[str, Any]]]:
  """Return (state, done, stop) -> (state after round `stop`, metrics).

  `train` is what the stage has prepared, `first` the rounds before it.
  """
  settings = experiment.settings
  chunk = settings['chunk']
  round_fn = make_round(
    stage.algorithm,
    chunk=chunk if chunk == 'auto' else int(chunk),
    backend='loop' if settings['debug'] else 'vmap',
    name=stage.name,
  )
  rounds_fn = (
    loop_rounds(round_fn) if settings['debug'] else make_rounds(round_fn)
  )

  def advance(state, done, stop):
    began = time.perf_counter()
    cohorts = cohorts_of(experiment, stage, keys['cohorts'], done, stop)
    server, clients, metrics = rounds_fn(
      state.server, state.clients, cohorts, train, keys['rounds']
    )
    metrics = jax.tree.map(np.asarray, metrics)  # waits until it is done
    took = time.perf_counter() - began
    counts = np.asarray(train.count[cohorts])
    images = num_images(metrics['num_steps'], counts, settings['batch_size'])
    numbers = {
      'stage': stage.name,
      **mean_metrics(metrics, counts > 0),
      'images_per_second': images / took,
      **message_bytes(
        stage, server, clients, train, cohorts.size, begins=done == first
      ),
    }
    seconds = state.seconds + took
    return State(server, clients, seconds, state.test_best), numbers

  return advance


def cohorts_of(
  experiment: Experiment, stage: Stage, key: Key, done: int, stop: int
) -> Array:
  """Return who takes part in the rounds after `done` up to `stop`: [T, C]."""
  num_clients = experiment.settings['clients']
  if stage.everyone:
    return jnp.tile(jnp.arange(num_clients), (stop - done, 1))
  return sample_cohorts(
    key, done, stop - done, num_clients, experiment.cohort_size
  )


def num_images(
  num_steps: np.ndarray, counts: np.ndarray, batch_size: int
) -> float:
  """Return the images in so many steps [T, C]: a batch has fewer at times."""
  batches = np.maximum(-(-counts // batch_size), 1)
  return float(np.sum(num_steps * counts / batches))


def loop_rounds(round_fn):
  """Return the same for cohorts [T, C], one round after the other."""

  def rounds(server, clients, cohorts, data, key):
    metrics = []
    for cohort in cohorts:
      server, clients, one = round_fn(server, clients, cohort, data, key)
      metrics.append(one)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *metrics)
    return server, clients, stacked

  return rounds


def mean_metrics(
  metrics: dict[str, np.ndarray], trained: np.ndarray
) -> dict[str, float]:
  """Return the means of the scalars over the rounds and clients that trained.

  `trained` is [T, C]. Where nobody did, the means are those of everybody: 0.
  """
  used = trained if trained.any() else ~trained
  return {
    name: float(np.mean(values[used]))
    for name, values in metrics.items()
    if values.ndim == 2  # [T, C]
  }


def message_bytes(
  stage: Stage,
  server: Server,
  clients: Client,
  data: ClientData,
  num_messages: int,
  *,
  begins: bool = False,
) -> dict[str, int]:
  """Return what crosses the network, from the shapes of the messages.

  Where the stage `begins`, all clients are sent what they then hold.
  """
  # The data are prepared already.
  bytes_of = traffic.count(
    stage._replace(prepare=as_stored), server, clients, data
  )
  once = data.count.shape[0] * bytes_of.once if begins else 0
  return {
    'bytes_down': num_messages * bytes_of.down + once,
    'bytes_up': num_messages * bytes_of.up,
  }


def check_finite(
  server: Server,
  numbers: dict[str, Any],
  done: int,
  stop: int,
  stage: Stage,
  run: Run,
) -> None:
  """Stop a run that has lost its numbers; what was saved stays."""
  finite = all(
    bool(jnp.all(jnp.isfinite(leaf)))
    for leaf in jax.tree.leaves(server)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  )
  if finite and np.isfinite(numbers['loss']):
    return
  run.close()
  raise bad_input(
    'training',
    got=f'NaN or infinity in rounds {done + 1} to {stop} of {stage.name} '
    f'(loss {numbers["loss"]:.3g})',
    expected='finite numbers',
    choices=['a smaller learning_rate', 'debug=True names the first bad step'],
    cause='a learning rate that is too high for this model; checkpoints and '
    f'metrics up to round {done} are kept',
  )


def write_result(
  experiment: Experiment,
  run: Run,
  scores: dict[str, Scores],
  whole: dict[str, Any],
  state: State,
  seconds: float,
) -> None:
  """Write clients.npz, then result.json: with it the run is over."""
  settings, more = experiment.settings, {}
  if whole:
    metrics = load_metrics(run.path) if experiment.rounds else []
    last = last_ones(metrics, experiment.stages[-1].name)
    more['global'] = {**whole, 'last10': last}
  if families := best_views(scores, experiment.train.count):
    more['test_best_view'] = families
  num_classes = experiment.source.num_classes
  run.write_clients(
    scores,
    np.arange(settings['clients']),
    train_count=experiment.train.count,
    train_classes=class_counts(experiment.train, num_classes),
    test_classes=class_counts(experiment.judging[1], num_classes),
  )
  run.write_result(
    algorithm=settings['algorithm'],
    dataset=experiment.source.name,
    rounds=experiment.rounds,
    seconds=seconds,
    views={
      view: summarise(score, experiment.train.count)
      for view, score in scores.items()
    },
    test_best=summarise_best(
      state.test_best, experiment.judging[1].count, experiment.train.count
    ),
    **more,
  )

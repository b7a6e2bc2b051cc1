"""From one stop of a run to the next: rounds, and the numbers about them."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Metrics, Stage
from fedjax_pfl.core.types import Array, Key
from fedjax_pfl.federated import communication, host_offload
from fedjax_pfl.federated.chunking import chunk_limit, chunk_size
from fedjax_pfl.federated.cohort import is_on_host, sample_cohorts
from fedjax_pfl.federated.oom_backoff import with_oom_backoff
from fedjax_pfl.federated.padding_overhead import expected_overhead
from fedjax_pfl.federated.rounds import Round, make_round, make_rounds
from fedjax_pfl.federated.sharding import replicate
from fedjax_pfl.training import divergence
from fedjax_pfl.training.experiment import Experiment, mesh_of
from fedjax_pfl.training.multi_seed import (
  Call,
  Result,
  SeedRun,
  num_side_by_side,
  side_by_side,
)
from fedjax_pfl.training.state import State

Numbers = dict[str, Any]  # of one line of metrics.jsonl
Advance = Callable[[Sequence[SeedRun], int], list[tuple[State, Numbers]]]


def make_advance(
  seed_runs: Sequence[SeedRun], stage: Stage, first: int
) -> Advance:
  """Return (seed_runs, stop) -> [(state after round `stop`, numbers)].

  For seed_runs in this stage that have done as many rounds; `first` is the
  number of those before it. What runs side by side shares the time that it
  takes.
  """
  seed_run = seed_runs[0]
  settings = seed_run.experiment.settings
  stage, bytes_of = communication.count_in_trace(stage, seed_run.state.server)
  mesh = mesh_of(settings)
  rounds_fn = make_rounds_fn(seed_run.experiment, stage, mesh)
  play_fn, width = side_by_side(rounds_fn, mesh), 1
  if len(seed_runs) > 1:
    call = call_of(seed_run, stage, seed_run.done + 1)
    width = num_side_by_side(seed_run.experiment, stage, call)

  def finite(seed_run, call, kept, result, metrics, stop):
    """Return result, metrics and who took part [T, C]; all are finite."""
    everyone = np.ones(metrics['loss'].shape, bool)
    lost = divergence.find_lost(call, result, metrics)
    if lost is None:
      return result, metrics, everyone
    refuse_fn = partial(divergence.refusal, seed_run, stage, stop)
    if settings.system.on_divergence == 'stop':
      raise refuse_fn(lost)
    divergence.put_back(call[1], np.unique(call[2]), kept)
    return divergence.play_without(rounds_fn, call, stage, refuse_fn)

  def kept_of(call):
    """Return what clients on the host have before they are written over."""
    if settings.system.on_divergence == 'stop':
      return []
    return divergence.keep_rows(call[1], np.unique(call[2]))

  def advance(seed_runs, stop):
    advanced = []
    for place in range(0, len(seed_runs), width):
      some, began = seed_runs[place : place + width], time.perf_counter()
      calls = [call_of(seed_run, stage, stop) for seed_run in some]
      kept = [kept_of(call) for call in calls]
      results = play_fn(calls)
      metrics = jax.tree.map(np.asarray, [one[2] for one in results])  # waits
      took = (time.perf_counter() - began) / len(some)
      for seed_run, call, rows, result, one in zip(
        some, calls, kept, results, metrics, strict=True
      ):
        result, one, took_part = finite(seed_run, call, rows, result, one, stop)
        numbers = {
          'stage': stage.name,
          **training_numbers(
            one, call, settings.training.batch_size, took, took_part
          ),
          **message_bytes(bytes_of(), call, begins=seed_run.done == first),
        }
        if settings.system.on_divergence == 'exclude':
          numbers |= told_excluded(seed_run, call, took_part)
        advanced.append((state_after(seed_run, result, took), numbers))
    return advanced

  return advance


def make_rounds_fn(
  experiment: Experiment, stage: Stage, mesh: Mesh | None = None
) -> Round:
  """Return rounds of cohorts [T, C] as the settings want them run."""
  settings, algorithm = experiment.settings, stage.algorithm
  if settings.system.debug:
    return loop_rounds(make_round(algorithm, backend='loop', name=stage.name))
  chunk = settings.system.clients_per_chunk
  limit = max_chunk(experiment, stage)
  if is_on_host(experiment.train):
    return host_offload.make_host_rounds(
      algorithm, chunk, limit=limit, log=progress.log
    )

  def make(chunk):
    rounds_fn = make_rounds(
      make_round(algorithm, clients_per_chunk=chunk, mesh=mesh)
    )
    return replicate(rounds_fn, mesh)

  def choose(server, clients, cohorts, data, key):
    args = server, clients, cohorts[0], data, key
    return chunk_size(chunk, algorithm, *args, limit=limit)

  return with_oom_backoff(make, chunk, choose, progress.log)


def max_chunk(experiment: Experiment, stage: Stage) -> int:
  """Return the limit of a chunk; log the padding overhead that it brings."""
  settings, counts = experiment.settings, np.asarray(experiment.train.count)
  size = (
    settings.data.num_clients
    if stage.full_participation
    else experiment.cohort_size
  )
  batch, chunk = settings.training.batch_size, settings.system.clients_per_chunk
  limit = chunk_limit(chunk, counts, size, batch)
  if limit > 1:
    share = expected_overhead(counts, size, limit, batch)
    progress.log(
      f'{"At most " * (chunk == "auto")}{limit} clients at a time: padding '
      f'overhead {100 * share:.1f} % of their steps.'
    )
  return limit


def call_of(seed_run: SeedRun, stage: Stage, stop: int) -> Call:
  """Return what the rounds up to `stop` are called with."""
  cohorts = cohorts_of(
    seed_run.experiment, stage, seed_run.keys['cohorts'], seed_run.done, stop
  )
  state = seed_run.state
  return (
    state.server,
    state.clients,
    cohorts,
    seed_run.data,
    seed_run.keys['rounds'],
  )


def state_after(seed_run: SeedRun, result: Result, seconds: float) -> State:
  """Return the state of a seed_run after rounds that took so long."""
  server, clients, _ = result
  return seed_run.state._replace(
    server=server, clients=clients, seconds=seed_run.state.seconds + seconds
  )


def cohorts_of(
  experiment: Experiment, stage: Stage, key: Key, done: int, stop: int
) -> Array:
  """Return who takes part in the rounds after `done` up to `stop`: [T, C]."""
  num_clients = experiment.settings.data.num_clients
  if stage.full_participation:
    return jnp.tile(jnp.arange(num_clients), (stop - done, 1))
  return sample_cohorts(
    key, done, stop - done, num_clients, experiment.cohort_size
  )


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


def told_excluded(
  seed_run: SeedRun, call: Call, took_part: np.ndarray
) -> Numbers:
  """Return how many took no part, and which: [round, client]; say it, too."""
  numbers: Numbers = {'excluded': int((~took_part).sum())}
  pairs = []
  for number, cohort in enumerate(np.asarray(call[2]), seed_run.done + 1):
    lost = divergence.ids_of(cohort[~took_part[number - seed_run.done - 1]])
    pairs += [[number, client] for client in lost]
    if lost:
      progress.log(
        f'Round {number}: without{divergence.told_clients(lost)}, whose '
        'numbers are not finite.'
      )
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers


def training_numbers(
  metrics: Metrics,
  call: Call,
  batch_size: int,
  seconds: float,
  took_part: np.ndarray,
) -> dict[str, float]:
  """Return means over the rounds of a call, and images per second.

  Clients that took no part [T, C] are in no mean.
  """
  _, _, cohorts, data, _ = call
  counts = np.asarray(data.count)[np.asarray(cohorts)]  # [T, C]
  images = num_images(metrics['num_steps'], counts, batch_size)
  return {
    **mean_metrics(metrics, (counts > 0) & took_part),
    'images_per_second': images / seconds,
  }


def num_images(
  num_steps: np.ndarray, counts: np.ndarray, batch_size: int
) -> float:
  """Return the images in so many steps [T, C]: a batch has fewer at times."""
  batches = np.maximum(-(-counts // batch_size), 1)
  return float(np.sum(num_steps * counts / batches))


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
  bytes_of: communication.Communication, call: Call, *, begins: bool
) -> dict[str, int]:
  """Return what crosses the network in the rounds of a call.

  Where the stage `begins`, all clients are sent what they then hold.
  """
  _, _, cohorts, data, _ = call
  once = data.count.shape[0] * bytes_of.initial if begins else 0
  return {
    'bytes_down': cohorts.size * bytes_of.down + once,
    'bytes_up': cohorts.size * bytes_of.up,
  }

"""Advance seeds from one stop of a run to the next; measure and check that."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.federated import communication
from fedjax_pfl.federated.client_dropout import with_dropout
from fedjax_pfl.training import divergence, round_metrics
from fedjax_pfl.training.drivers.choose import choose_driver
from fedjax_pfl.training.drivers.driver import Call, Result, RoundDriver
from fedjax_pfl.training.drivers.without_diverged import without_diverged
from fedjax_pfl.training.round_metrics import Numbers
from fedjax_pfl.training.seed_run import SeedRun, make_call
from fedjax_pfl.training.state import State

Advance = Callable[[Sequence[SeedRun], int], list[tuple[State, Numbers]]]


def make_advance(
  seed_runs: Sequence[SeedRun], stage: Stage, first: int
) -> Advance:
  """Return (seed_runs, stop) -> [(state after round `stop`, numbers)].

  For seeds with equally many rounds done in this stage, which starts after
  round `first`. Seeds that run side by side share the time of the call.
  """
  stage, bytes_fn = communication.count_in_trace(
    stage, seed_runs[0].state.server
  )
  training = seed_runs[0].experiment.settings.training
  stage = with_dropout(stage, training.dropout_rate)
  driver = choose_driver(seed_runs, stage)

  def advance(seed_runs, stop):
    advanced = []
    for place in range(0, len(seed_runs), driver.max_calls):
      group = seed_runs[place : place + driver.max_calls]
      for seed_run, call, result, seconds in _run(driver, group, stage, stop):
        numbers = {
          'stage': stage.name,
          **_numbers(seed_run, call, result, seconds),
          **round_metrics.message_bytes(
            bytes_fn(), call, result, starts_stage=seed_run.done == first
          ),
          **round_metrics.dropped_clients(result),
          **_excluded(seed_run, call, result),
        }
        advanced.append((_state_after(seed_run, result, seconds), numbers))
    return advanced

  return advance


def _run(driver: RoundDriver, seed_runs: Sequence[SeedRun], stage, stop):
  """Yield every seed with its call, its finite result and its seconds."""
  began = time.perf_counter()
  calls = [make_call(seed_run, stage, stop) for seed_run in seed_runs]
  rows = [_rows_before(*pair) for pair in zip(seed_runs, calls, strict=True)]
  results = driver.run(calls)
  seconds = (time.perf_counter() - began) / len(seed_runs)
  for seed_run, call, before, result in zip(
    seed_runs, calls, rows, results, strict=True
  ):
    if found := divergence.find_divergence(call, result):
      error_fn = partial(divergence.divergence_error, seed_run, stage, stop)
      if not _excludes(seed_run):
        raise error_fn(found)
      again = time.perf_counter()
      divergence.restore_rows(call.clients, np.unique(call.cohorts), before)
      (result,) = without_diverged(driver, stage, error_fn).run([call])
      yield seed_run, call, result, seconds + time.perf_counter() - again
    else:
      yield seed_run, call, result, seconds


def _excludes(seed_run: SeedRun) -> bool:
  return seed_run.experiment.settings.system.on_divergence == 'exclude'


def _rows_before(seed_run: SeedRun, call: Call) -> list[np.ndarray]:
  """Return what clients on the host have before rounds write over it."""
  if not _excludes(seed_run):
    return []
  return divergence.rows_on_host(call.clients, np.unique(call.cohorts))


def _numbers(
  seed_run: SeedRun, call: Call, result: Result, seconds: float
) -> Numbers:
  batch_size = seed_run.experiment.settings.training.batch_size
  return round_metrics.training_numbers(call, result, batch_size, seconds)


def _excluded(seed_run: SeedRun, call: Call, result: Result) -> Numbers:
  if not _excludes(seed_run):
    return {}
  return round_metrics.excluded_clients(call, result.took_part, seed_run.done)


def _state_after(seed_run: SeedRun, result: Result, seconds: float) -> State:
  """Return the state after rounds that took so many seconds."""
  return seed_run.state._replace(
    server=result.server,
    clients=result.clients,
    seconds=seed_run.state.seconds + seconds,
  )

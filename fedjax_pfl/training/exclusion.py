"""Rounds again, one by one, without the clients that diverge in them.

As if these had not been drawn, whatever the method makes of uploads.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated import mesh_states
from fedjax_pfl.federated.cohort import client_update, gather
from fedjax_pfl.federated.sharding import is_divided
from fedjax_pfl.training.divergence import (
  Divergence,
  as_ids,
  finite_rows,
  is_finite,
  restore_rows,
  rows_on_host,
)
from fedjax_pfl.training.program import Call, Result, Rounds

ErrorFn = Callable[[Divergence], BadInput]


def without_diverged(
  rounds_fn: Rounds, stage: Stage, error_fn: ErrorFn, call: Call
) -> Result:
  """Return the result of a call without the clients that diverge in a round.

  Raises error_fn(divergence) where no client is left, where the stage needs all
  of them, or where no client is the cause.
  """
  results = []
  for number, cohort in enumerate(np.asarray(call.cohorts)):
    result = _run_round(rounds_fn, stage, error_fn, call, cohort, number)
    call = call._replace(server=result.server, clients=result.clients)
    results.append(result)
  metrics, took_part = jax.tree.map(
    lambda *leaves: np.concatenate(leaves),
    *[(result.metrics, result.took_part) for result in results],
  )
  return Result(call.server, call.clients, metrics, took_part)


def _run_round(
  rounds_fn: Rounds,
  stage: Stage,
  error_fn: ErrorFn,
  call: Call,
  cohort: np.ndarray,
  number: int,
) -> Result:
  """Return the result [1, C] of a round, repeated until no client diverges."""
  stays = np.ones(cohort.shape, bool)
  before = rows_on_host(call.clients, cohort)
  while True:
    restore_rows(call.clients, cohort, before)
    if not stays.any() or (stage.full_participation and not stays.all()):
      ids = as_ids(cohort[~stays])
      raise error_fn(Divergence(number, ids, 'in the training of'))
    ids = cohort[stays]
    result = rounds_fn(call._replace(cohorts=jnp.asarray(ids)[None]))
    diverged = ~np.isfinite(result.metrics['loss'][0])
    diverged |= ~finite_rows(result.clients, ids)
    if not diverged.any():
      if is_finite(result.server):
        break
      restore_rows(call.clients, cohort, before)
      diverged = ~_finite_uploads(stage.algorithm, call, ids)
    if not diverged.any():
      raise error_fn(Divergence(number, (), 'in the server state'))
    stays[np.flatnonzero(stays)[diverged]] = False
  metrics = jax.tree.map(partial(_fill_zeros, stays), result.metrics)
  return result._replace(metrics=metrics, took_part=stays[None])


def _finite_uploads(
  algorithm: Algorithm, call: Call, ids: np.ndarray
) -> np.ndarray:
  """Return whose uploads are finite: [C] bool.

  By training these clients once more: it is rare enough.
  """
  data, clients, places = call.data, call.clients, ids
  if any(map(is_divided, jax.tree.leaves(clients))):
    clients, places = mesh_states.rows(clients, ids), np.arange(len(ids))
  rows = gather((), ids, data)
  rows = rows._replace(clients=trees.gather(clients, places))
  uploads = _uploads(algorithm, call.server, rows, data.x, data.y, call.key)
  return finite_rows(uploads, np.arange(len(ids)))


@partial(jax.jit, static_argnums=0)
def _uploads(algorithm, server, rows, x, y, key):
  update = client_update(algorithm, server, ClientData(x, y, None, None), key)
  return lax.map(lambda row: update(row)[1], rows)


def _fill_zeros(stays: np.ndarray, values: np.ndarray) -> np.ndarray:
  """Return the values [1, C', ...] of those that stay as [1, C, ...]."""
  filled = np.zeros((1, len(stays), *values.shape[2:]), values.dtype)
  filled[0, stays] = values[0]
  return filled

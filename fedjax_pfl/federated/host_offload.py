"""Host offload: the states and rows of clients are numpy arrays on the host.

  rows on the host -> those of the cohort -> compile_round -> written back

A device holds the server and two cohorts, however many clients are registered:
the rows of the next one are collected while a round runs. An accelerator has
the examples of these cohorts alone (`with_own_pool`); a CPU reads those of all
where they are. The results are those of clients on the device, bit for bit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server
from fedjax_pfl.core.target import compiler_options
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.data.client_data import client_of, with_own_pool
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.cohort import (
  Cohort,
  Watch,
  client_update,
  end_round,
  gather,
  server_data,
)


def host_rounds(
  round_fn: Callable,
  of_server_fn: Callable[[ClientData], ClientData | None],
  numbers: Mapping[str, Any],
  server: Server,
  clients: Client,
  cohorts: Array,
  data: ClientData,
  key: Key,
  examples: ClientData | None = None,
) -> tuple[Server, Client, Metrics]:
  """Return what rounds of cohorts [T, C] return, of clients on the host.

  round_fn: that of `compile_round` for a chunk. The given arrays of client
  states are updated in place: to copy all would take longer than the round.
  `examples` are those of the first cohort, if they are there: `examples_of`.

  While a round runs, the rows of the one before are written back, and those of
  the next are collected and moved.
  """
  del numbers  # each setting has its own algorithm
  metrics, cohorts = [], np.asarray(cohorts)
  of_server, before = of_server_fn(data), None
  for cohort_ids in cohorts:
    order = order_of(cohort_ids, data)
    examples, ids = examples or examples_of(cohort_ids, data), cohort_ids[order]
    cohort = gather(clients, ids, data)._replace(index=examples.index)
    cohort = jax.device_put(cohort)
    if before:
      cohort = cohort._replace(clients=latest(cohort, *before))
    server, rows, of_round = round_fn(
      data.index.shape,
      server,
      cohort,
      np.argsort(order),
      examples.x,
      examples.y,
      key,
      of_server,
    )
    metrics.append(of_round)
    if before:
      write_rows(clients, *before)  # waits for them
    before, examples = (ids, rows), None
  write_rows(clients, *before)
  return server, clients, trees.stack(metrics)


def server_data_fn(
  algorithm: Algorithm,
) -> Callable[[ClientData], ClientData | None]:
  """Return the function that moves what the server reads of data, once."""
  last = [None, None]  # labels, and what was moved; held: an id is used again

  def of_server(data):
    if last[0] is not data.y:
      last[:] = data.y, server_data(algorithm, data)
    return last[1]

  return of_server


def order_of(ids: np.ndarray, data: ClientData) -> np.ndarray:
  """Return the order in which clients are trained: that of `by_size`."""
  return np.lexsort((ids, data.count[ids]))


def examples_of(ids: np.ndarray, data: ClientData) -> ClientData:
  """Return the examples of a cohort, in the order in which it is trained."""
  return with_own_pool(client_of(data, ids[order_of(ids, data)]))


@jax.jit
def latest(cohort: Cohort, ids: Array, rows: Client) -> Client:
  """Return the states of a cohort; clients of these ids have these rows."""
  is_same = cohort.ids[:, None] == ids
  rows = trees.gather(rows, jnp.argmax(is_same, 1))
  return jax.vmap(trees.choose)(jnp.any(is_same, 1), rows, cohort.clients)


def compile_round(
  algorithm: Algorithm, watch: Watch | None, chunk: int
) -> jax.stages.Wrapped:
  """Return the round of one cohort: one program for every cohort.

  (shape, server, cohort, position, x, y, key, data of the server, if any) ->
  (server, rows, metrics in the order of ids). `shape` [K, N] is that of all
  indices; `position` [C] is where each id of the cohort is trained.
  """
  integers = partial(jax.ShapeDtypeStruct, dtype=jnp.int32)

  def run(shape, server, cohort, position, x, y, key, of_server=None):
    data = ClientData(x, y, integers(shape), integers(shape[:1]))
    update = client_update(algorithm, server, data, key, watch)
    results = chunking.map_chunks(update, cohort, chunk)
    return end_round(
      algorithm, server, cohort, position, results, data, of_server, key
    )

  return jax.jit(run, static_argnums=0, compiler_options=compiler_options())


def write_rows(clients: Client, places: np.ndarray, rows: Client) -> None:
  """Wait for the rows, and write them into places of the host's arrays."""
  for leaf, new in zip(
    jax.tree.leaves(clients), jax.tree.leaves(rows), strict=True
  ):
    leaf[places] = np.asarray(new)

"""Host offload: the states and rows of clients are numpy arrays on the host.

  rows on the host -> those of the cohort -> compile_round -> written back

A device holds the images, the server, and one cohort, however many clients are
registered. The rows of the next cohort are collected while a round runs. The
results are those of clients on the device, bit for bit.
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
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.cohort import Watch, client_update, end_round, gather


def host_rounds(
  round_fn: Callable,
  numbers: Mapping[str, Any],
  server: Server,
  clients: Client,
  cohorts: Array,
  data: ClientData,
  key: Key,
) -> tuple[Server, Client, Metrics]:
  """Return what rounds of cohorts [T, C] return, of clients on the host.

  round_fn: that of `compile_round` for a chunk. The given arrays of client
  states are updated in place: to copy all would take longer than the round.
  """
  del numbers  # each setting has its own algorithm
  metrics, cohorts = [], np.asarray(cohorts)
  orders = np.lexsort((cohorts, data.count[cohorts]))  # by_size, [T, C]
  trained = np.take_along_axis(cohorts, orders, 1)
  cohort = gather(clients, trained[0], data)
  following = [*trained[1:], trained[0, :0]]  # nobody in the end
  for ids, order, after in zip(trained, orders, following, strict=True):
    server, rows, of_round = round_fn(
      data.index.shape,
      server,
      jax.device_put(cohort),
      np.argsort(order),
      data.x,
      data.y,
      key,
    )
    metrics.append(of_round)
    cohort = gather(clients, after, data)  # while the round runs
    write_rows(clients, ids, rows)  # waits for it
    is_old = np.isin(cohort.ids, ids)
    latest = trees.gather(clients, cohort.ids[is_old])
    write_rows(cohort.clients, is_old, latest)
  return server, clients, trees.stack(metrics)


def compile_round(
  algorithm: Algorithm, watch: Watch | None, chunk: int
) -> jax.stages.Wrapped:
  """Return the round of one cohort: one program for every cohort.

  (shape, server, cohort, position, x, y, key) -> (server, rows, metrics in the
  order of ids). `shape` [K, N] is that of all indices; `position` [C] is where
  each id of the cohort is trained.
  """
  integers = partial(jax.ShapeDtypeStruct, dtype=jnp.int32)

  def run(shape, server, cohort, position, x, y, key):
    data = ClientData(x, y, integers(shape), integers(shape[:1]))
    update = client_update(algorithm, server, data, key, watch)
    results = chunking.map_chunks(update, cohort, chunk)
    return end_round(algorithm, server, cohort, position, results, data, key)

  return jax.jit(run, static_argnums=0, compiler_options=compiler_options())


def write_rows(clients: Client, places: np.ndarray, rows: Client) -> None:
  """Wait for the rows, and write them into places of the host's arrays."""
  for leaf, new in zip(
    jax.tree.leaves(clients), jax.tree.leaves(rows), strict=True
  ):
    leaf[places] = np.asarray(new)

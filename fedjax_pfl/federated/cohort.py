"""The clients of a round: their rows, the updates of both sides, the round.

`run_round` is a round on one device; on several see client_map.py, and with
clients on the host host_offload.py.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import chacha, trees
from fedjax_pfl.core.algorithm import (
  SERVER_FINITE,
  Algorithm,
  Client,
  Down,
  Metrics,
  Senders,
  Server,
  Up,
)
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.data.client_data import with_own_pool
from fedjax_pfl.federated.model_axis import divide, groups

# (client before, down, client after, up, metrics) -> the metrics of a client.
Watch = Callable[[Client, Down, Client, Up, Metrics], Metrics]


class Cohort(NamedTuple):
  """Rows [C, ...] of the clients of a round; of one client without the C."""

  clients: Client  # states
  index: Array  # [C, N] rows of the pool
  count: Array  # [C] examples
  ids: Array  # [C]
  work: Array | None = None  # [C] of `ClientData`


class Change(NamedTuple):
  """The states of clients [n, ...] after a round, and whose they are."""

  ids: Array | None  # [n]; None: `rows` are the states of all clients
  rows: Client


def by_size(ids: Array, count: Array, num_devices: int = 1) -> Array:
  """Return the order in which the clients of a cohort are trained: [C].

  By number of examples, so that the clients of a chunk have about as many
  steps; then by id, so that sums do not depend on the order of `ids`. Of
  several devices those of the first come first, then of the second, ...
  """
  order = jnp.lexsort((ids, count[ids]))
  if num_devices == 1:
    return order
  return order[device_order(ids.shape[0], num_devices)]


def device_order(size: int, num_devices: int) -> np.ndarray:
  """Return the rows of the first device, of the second, ...: [C].

  >>> device_order(5, 2)  # the first device runs rows 0, 1 and 3
  array([0, 1, 3, 2, 4])
  """
  share = -(-size // num_devices)
  used = -(-size // share)
  left_over = used * share - size  # of the last device, in its first turns
  places = np.ones((share, used), bool)
  places[:left_over, -1] = False
  rows = np.cumsum(places).reshape(share, used) - 1
  return rows.T[places.T]


def gather(clients: Client, ids: Array, data: ClientData) -> Cohort:
  """Return the states and the rows of indices of these clients [C]."""
  tables = clients, data.index, data.count, data.work
  clients, index, count, work = trees.gather(tables, ids)
  return Cohort(clients, index, count, ids, work)


def client_key(key: Key, number: Array, client: Array) -> Key:
  """Return the key of a client in the round of this number."""
  round_key = jax.random.fold_in(key, number)
  return chacha.as_fast(jax.random.fold_in(round_key, client))


def client_update(
  algorithm: Algorithm,
  server: Server,
  data: ClientData,
  key: Key,
  watch: Watch | None = None,
) -> Callable[[Cohort], tuple[Client, Up, Metrics]]:
  """Return the function of one row of a cohort: (client, upload, metrics)."""

  def update(row: Cohort):
    down = divide(algorithm.download(server, row.clients))
    client, up, metrics = algorithm.local_update(
      down,
      row.clients,
      ClientData(data.x, data.y, row.index, row.count, row.work),
      client_key(key, server.round, row.ids),
    )
    client, up = divide((client, up))
    if watch is not None:
      metrics = watch(row.clients, down, client, up, metrics)
    return client, up, metrics

  return update


def all_send(
  ids: Array,
  counts: Array,
  data: ClientData,
  shares: int = 1,
  of_server: ClientData | None = None,
) -> Senders:
  """Return the senders of a cohort [C] in which no client fails."""
  has_sent, num_clients = jnp.ones(ids.shape, bool), data.count.shape[0]
  return Senders(ids, counts, has_sent, num_clients, shares, data=of_server)


def server_data(algorithm: Algorithm, data: ClientData) -> ClientData | None:
  """Return the examples that the server reads: index [R], count []."""
  if algorithm.server_rows is None:
    return None
  rows = jnp.asarray(algorithm.server_rows(len(data.y)), jnp.int32)
  count = jnp.asarray(rows.size)
  return with_own_pool(ClientData(data.x, data.y, rows, count))


def server_update(
  algorithm: Algorithm, server: Server, uploads: Up, senders: Senders, key: Key
) -> Server:
  """Return the server after the uploads [C, ...]; its key is that of id K."""
  round_key = jax.random.fold_in(key, server.round)
  server_key = jax.random.fold_in(round_key, senders.num_clients)
  senders = senders._replace(rng=server_key)
  return divide(algorithm.aggregate(server, uploads, senders))


# ---- A round on one device ---------------------------------------------------


def run_round(
  algorithm: Algorithm,
  watch: Watch | None,
  map_fn: Callable,
  data: ClientData,
  key: Key,
  states: tuple[Server, Client],
  ids: Array,
) -> tuple[Server, Change, Metrics]:
  """Return (server, states that changed, metrics) after a round of ids [C].

  map_fn: (update, cohort) -> what the update returns of every client.
  """
  (server, clients), order = states, by_size(ids, data.count, groups())
  cohort = gather(clients, ids[order], data)
  results = map_fn(client_update(algorithm, server, data, key, watch), cohort)
  server, rows, metrics = end_round(
    algorithm,
    server,
    cohort,
    jnp.argsort(order),
    results,
    data,
    server_data(algorithm, data),
    key,
  )
  return server, Change(cohort.ids, rows), metrics


def write(clients: Client, change: Change) -> Client:
  """Return the states of all clients after the change."""
  return trees.scatter(clients, *change)


def end_round(
  algorithm: Algorithm,
  server: Server,
  cohort: Cohort,
  position: Array,
  results: tuple[Client, Up, Metrics],
  data: ClientData,
  of_server: ClientData | None,
  key: Key,
) -> tuple[Server, Client, Metrics]:
  """Return (server, rows of the cohort's clients, metrics) after a round.

  Metrics are in the order of `position` [C], where each client is trained.
  """
  rows, uploads, metrics = results
  for leaf in jax.tree.leaves(uploads):
    assert leaf.shape[:1] == cohort.ids.shape, leaf.shape  # [C, ...]
  senders = all_send(cohort.ids, cohort.count, data, groups(), of_server)
  server = server_update(algorithm, server, uploads, senders, key)
  if algorithm.respond is not None:
    rows = algorithm.respond(server, rows, uploads, senders)
  metrics = trees.gather(metrics, position)
  return server, rows, {**metrics, SERVER_FINITE: trees.all_finite(server)}

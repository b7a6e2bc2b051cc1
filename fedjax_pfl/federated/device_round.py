"""A round on one device: rows of the cohort, their updates, the server's.

Of a round on several devices see client_map.py.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  SERVER_FINITE,
  Algorithm,
  Client,
  Metrics,
  Server,
  Up,
)
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.cohort import (
  Cohort,
  Watch,
  all_send,
  by_size,
  client_update,
  gather,
  server_update,
)


def run_round(
  algorithm: Algorithm,
  watch: Watch | None,
  map_fn: Callable,
  data: ClientData,
  key: Key,
  states: tuple[Server, Client],
  ids: Array,
) -> tuple[tuple[Server, Client], Metrics]:
  """Return ((server, clients), metrics) after a round of clients `ids` [C].

  map_fn: (update, cohort) -> what the update returns of every client.
  """
  (server, clients), order = states, by_size(ids, data.count)
  cohort = gather(clients, ids[order], data)
  results = map_fn(client_update(algorithm, server, data, key, watch), cohort)
  server, rows, metrics = end_round(
    algorithm, server, cohort, jnp.argsort(order), results, data, key
  )
  return (server, trees.scatter(clients, cohort.ids, rows)), metrics


def end_round(
  algorithm: Algorithm,
  server: Server,
  cohort: Cohort,
  position: Array,
  results: tuple[Client, Up, Metrics],
  data: ClientData,
  key: Key,
) -> tuple[Server, Client, Metrics]:
  """Return (server, rows of the cohort's clients, metrics) after a round.

  `results` [C, ...] of the clients are in the order of the cohort, metrics are
  returned in that of `position` [C], the place where each client is trained.
  """
  rows, uploads, metrics = results
  for leaf in jax.tree.leaves(uploads):
    assert leaf.shape[:1] == cohort.ids.shape, leaf.shape  # [C, ...]
  senders = all_send(cohort.ids, cohort.count, data)
  server = server_update(algorithm, server, uploads, senders, key)
  if algorithm.respond is not None:
    rows = algorithm.respond(server, rows, uploads, senders)
  metrics = trees.gather(metrics, position)
  return server, rows, {**metrics, SERVER_FINITE: trees.all_finite(server)}

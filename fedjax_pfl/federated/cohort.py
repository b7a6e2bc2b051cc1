"""Who takes part in a round, what they bring, and what each of them does."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server, Up
from fedjax_pfl.core.types import Array, ClientData, Key

MANY = 2000  # clients; on a CPU, to sort more takes longer than short rounds


class Cohort(NamedTuple):
  """What the clients of one round bring: rows [C, ...]; without C, one's."""

  clients: Client
  index: Array  # [C, N] into the pool
  count: Array  # [C]
  ids: Array  # [C]


def cohort_size(num_clients: int, fraction: float) -> int:
  """Return C = max(floor(K f), 1)."""
  return max(int(num_clients * fraction), 1)


@partial(jax.jit, static_argnums=(1, 2))
def sample_cohort(key: Key, num_clients: int, size: int) -> Array:
  """Return `size` distinct clients, uniform without replacement, sorted: [C].

  >>> cohort = sample_cohort(jax.random.key(0), 100, 10)
  """
  return jnp.sort(jax.random.permutation(key, num_clients)[:size])


def sample_cohorts(
  key: Key, first: int, rounds: int, num_clients: int, size: int
) -> Array:
  """Return the cohorts of rounds first, first + 1, ...: [T, C]."""
  if num_clients > MANY:
    return jnp.stack(
      [
        _first_of_many(jax.random.fold_in(key, number), num_clients, size)
        for number in range(first, first + rounds)
      ]
    )
  return _sample_cohorts(key, first, rounds, num_clients, size)


@partial(jax.jit, static_argnums=(2, 3, 4))
def _sample_cohorts(key, first, rounds, num_clients, size):
  keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(
    first + jnp.arange(rounds)
  )
  return jax.vmap(lambda k: sample_cohort(k, num_clients, size))(keys)


def _first_of_many(key: Key, num_clients: int, size: int) -> Array:
  """Return what `sample_cohort` returns; does not sort all clients.

  A permutation of JAX sorts by random tickets, once or more often. Who comes
  to the first places is found from the last sort backwards, by partitions.
  """
  places = np.arange(size)
  for tickets in np.asarray(_tickets(key, num_clients))[::-1]:
    # Clients with the same ticket keep their order.
    ranked = tickets.astype(np.uint64) << 32 | np.arange(num_clients).astype(
      np.uint64
    )
    ranked.partition(np.unique(places))
    places = (ranked[places] & np.uint64(2**32 - 1)).astype(np.int32)
  return jnp.asarray(np.sort(places))


@partial(jax.jit, static_argnums=1)
def _tickets(key: Key, num_clients: int) -> Array:
  """Return the tickets [sorts, K] uint32 of `jax.random.permutation`."""
  bits = np.log(np.iinfo(np.uint32).max)
  rows = []
  for _ in range(int(np.ceil(3 * np.log(num_clients) / bits))):
    key, own = jax.random.split(key)
    rows.append(jax.random.bits(own, (num_clients,), jnp.uint32))
  return jnp.stack(rows)


def by_size(ids: Array, count: Array) -> Array:
  """Return the order of a cohort [C] in which it is trained.

  By size, so that a chunk holds clients of like size and its steps are not
  wasted; then by id, so that sums do not move with the order of `ids`.
  """
  return jnp.lexsort((ids, count[ids]))


def gather(clients: Client, ids: Array, data: ClientData) -> Cohort:
  """Return the rows of these clients [C]."""
  return Cohort(
    trees.gather(clients, ids), data.index[ids], data.count[ids], ids
  )


def is_on_host(data: ClientData) -> bool:
  """Return whether the rows of clients are numpy arrays: see feeding.py."""
  return isinstance(data.index, np.ndarray)


def client_update(
  algorithm: Algorithm, server: Server, data: ClientData, key: Key
) -> Callable[[Cohort], tuple[Client, Up, Metrics]]:
  """Return one row of a cohort -> (client, upload, metrics)."""
  round_key = jax.random.fold_in(key, server.round)

  def update(one: Cohort):
    return algorithm.local_update(
      algorithm.download(server, one.clients),
      one.clients,
      ClientData(data.x, data.y, one.index, one.count),
      jax.random.fold_in(round_key, one.ids),
    )

  return update

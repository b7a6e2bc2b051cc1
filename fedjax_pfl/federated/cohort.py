"""Cohorts: who takes part, their rows, and the updates of both sides."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import (
  Algorithm,
  Client,
  Metrics,
  Senders,
  Server,
  Up,
)
from fedjax_pfl.core.types import Array, ClientData, Key

# Registered clients. On a CPU a permutation of more takes longer than a short
# round: 4 ms of 10,000 clients, 50 ms of 100,000; top_k takes 0.4 and 1 ms.
MAX_PERMUTED = 2000
SAMPLINGS = 'fixed', 'poisson', 'cyclic'
FRACTION = rules.interval('(0, 1]', 'a percentage, or clients', 'a fraction')
JOINING = 2**31 - 4  # of a client's key; methods use small numbers
GROUPS = 2**31 - 5  # of the key of the rounds, which uses their numbers
OVERFLOW = 1e-15


class Cohort(NamedTuple):
  """Rows [C, ...] of the clients of a round; of one client without the C."""

  clients: Client  # states
  index: Array  # [C, N] rows of the pool
  count: Array  # [C] examples
  ids: Array  # [C]
  work: Array | None = None  # [C] of `ClientData`


def cohort_size(num_clients: int, fraction: float) -> int:
  """Return C = max(floor(K f), 1).

  The product is that of float64, as in the papers' public code: of 100 clients
  0.29 is 28.99.., so 28.

  Args:
    num_clients: K, the registered clients.
    fraction: f, the share of them that takes part in a round.

  Returns:
    C, the clients of a round.

  >>> pfl.cohort_size(100, 0.1)
  10
  """
  FRACTION.check('fraction', fraction)
  return max(int(num_clients * fraction), 1)


@partial(jax.jit, static_argnums=(1, 2))
def sample_cohort(key: Key, num_clients: int, size: int) -> Array:
  """Return distinct clients, uniform without replacement, in increasing order.

  The first places of a permutation of all clients. For more than MAX_PERMUTED
  clients it is another draw: the clients with the largest random numbers.

  Args:
    key: a JAX key; the same key draws the same cohort.
    num_clients: K, the registered clients.
    size: C, the clients of the cohort.

  Returns:
    ids [C] int32 from 0 to K - 1.

  >>> pfl.sample_cohort(jax.random.key(0), 100, 10).shape
  (10,)
  """
  rules.Rule(
    lambda value: rules.is_int(value) and 1 <= value <= num_clients,
    f'from 1 to {num_clients}, the registered clients',
    'the arguments interchanged: (key, num_clients, size)',
  ).check('size', size)
  if num_clients <= MAX_PERMUTED:
    return jnp.sort(jax.random.permutation(key, num_clients)[:size])
  numbers = jax.random.uniform(key, (num_clients,), jnp.float32)
  return jnp.sort(lax.top_k(numbers, size)[1])


@partial(jax.jit, static_argnums=(2, 3, 4))
def sample_cohorts(
  key: Key, first: int, rounds: int, num_clients: int, size: int
) -> Array:
  """Return the cohorts of rounds first, first + 1, ...

  That of round r is `sample_cohort(fold_in(key, r), num_clients, size)`.

  Args:
    key: a JAX key.
    first: the number of the first round.
    rounds: T, how many rounds.
    num_clients: K, the registered clients.
    size: C, the clients of a cohort.

  Returns:
    ids [T, C] int32, for `make_rounds`.

  >>> pfl.sample_cohorts(jax.random.key(0), 0, 5, 100, 10).shape
  (5, 10)
  """
  numbers = first + jnp.arange(rounds)
  keys = jax.vmap(partial(jax.random.fold_in, key))(numbers)
  return jax.vmap(lambda own: sample_cohort(own, num_clients, size))(keys)


# ---- Poisson cohorts ---------------------------------------------------------


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def poisson_cohorts(
  key: Key,
  first: int,
  rounds: int,
  num_clients: int,
  size: int,
  num_groups: int = 1,
) -> Array:
  """Return the ids [T, C] of those among whom `joins` chooses in each round.

  Every client joins with probability q, independently, by a number u < q of its
  key. The C clients with the least u are all that join, if these are at most C;
  `key` is that of the rounds, and `first` the clock of the server.

  Several groups, of equal size and drawn from the key, take turns.
  """
  if num_groups > 1:
    own = jax.random.fold_in(key, GROUPS)
    groups = jax.random.permutation(own, num_clients) % num_groups  # [K]

  def cohort(number):
    fold = partial(jax.random.fold_in, jax.random.fold_in(key, number))
    keys = jax.vmap(fold)(jnp.arange(num_clients))
    draws = jax.vmap(_draw)(keys)
    if num_groups > 1:
      draws = jnp.where(groups == number % num_groups, draws, 2.0)
    return jnp.sort(lax.top_k(-draws, size)[1])

  return jax.vmap(cohort)(first + jnp.arange(rounds))


def joins(rng: Key, rate: float) -> Array:
  """Return whether the client with this key takes part: []."""
  return _draw(rng) < rate


def _draw(rng):
  return jax.random.uniform(jax.random.fold_in(rng, JOINING))


def poisson_places(num_clients: int, rate: float) -> int:
  """Return C, which more clients join than with probability OVERFLOW.

  A round then leaves out the others. To delta that adds less than
  (1 + e^epsilon) T OVERFLOW.
  """
  from scipy import stats

  more = stats.binom.sf(np.arange(num_clients + 1), num_clients, rate)
  return max(int(np.argmax(more <= OVERFLOW)), 1)


def by_size(ids: Array, count: Array) -> Array:
  """Return the order in which the clients of a cohort are trained: [C].

  By number of examples, so that the clients of a chunk have about as many
  steps; then by id, so that sums do not depend on the order of `ids`.
  """
  return jnp.lexsort((ids, count[ids]))


def gather(clients: Client, ids: Array, data: ClientData) -> Cohort:
  """Return the states and the rows of indices of these clients [C]."""
  tables = clients, data.index, data.count, data.work
  clients, index, count, work = trees.gather(tables, ids)
  return Cohort(clients, index, count, ids, work)


def client_update(
  algorithm: Algorithm, server: Server, data: ClientData, key: Key
) -> Callable[[Cohort], tuple[Client, Up, Metrics]]:
  """Return the function of one row of a cohort: (client, upload, metrics)."""
  round_key = jax.random.fold_in(key, server.round)

  def update(row: Cohort):
    return algorithm.local_update(
      algorithm.download(server, row.clients),
      row.clients,
      ClientData(data.x, data.y, row.index, row.count, row.work),
      jax.random.fold_in(round_key, row.ids),
    )

  return update


def all_send(
  ids: Array, counts: Array, data: ClientData, shares: int = 1
) -> Senders:
  """Return the senders of a cohort [C] in which no client fails."""
  num_clients = data.count.shape[0]
  return Senders(ids, counts, jnp.ones(ids.shape, bool), num_clients, shares)


def server_update(
  algorithm: Algorithm,
  server: Server,
  uploads: Up,
  senders: Senders,
  data: ClientData,
  key: Key,
) -> Server:
  """Return the server after the uploads [C, ...]; its key is that of id K."""
  round_key = jax.random.fold_in(key, server.round)
  server_key = jax.random.fold_in(round_key, senders.num_clients)
  server = algorithm.aggregate(server, uploads, senders)
  return algorithm.post_aggregate(server, data, server_key)

"""Samplers: who takes part in each round, as a record.

  fixed     C = max(floor(K f), 1) clients, uniform without replacement
  poisson   each client joins with probability f, independently
  cyclic    b groups of equal size take turns; each of a group joins with b f
  in_turn   C clients after C others in a random order of all, then a new order
  everyone  all K clients
  scheduled as a simulation of buffers has found (around/buffers.py)

A compiled round has a fixed number of places. Where clients join at random,
`draw` fills them with those most likely to join, and `joins` decides in the
round (failures.py).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core import rules
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Key
from fedjax_pfl.federated.cohort import client_key

# Registered clients. On a CPU a permutation of more takes longer than a short
# round: 4 ms of 10,000 clients, 50 ms of 100,000; top_k takes 0.4 and 1 ms.
MAX_PERMUTED = 2000
FRACTION = rules.interval('(0, 1]', 'a percentage, or clients', 'a fraction')
JOINING = 2**31 - 4  # of a client's key; methods use small numbers
GROUPS = 2**31 - 5  # of the key of the rounds, which uses their numbers
OVERFLOW = 1e-15


class Sampler(NamedTuple):
  """How the clients of a round are drawn.

  Args:
    draw: (key, first, rounds) -> ids [T, C] of the rounds first, first + 1, ..
      Distinct in a round, and the same for a round whatever the first one is:
      a run may stop and continue anywhere.
    size: C, the places of a round.
    expected: how many clients take part on average; None: all C.
    joining: the probability with which the client in a place takes part.
    accounting: what bounds the privacy of such rounds (accountant.py):
      'without_replacement', 'poisson', 'cyclic' or 'all'. None: nothing that
      is known, so that `dp.clip` is refused.
    by_rounds: whether `key` is that of the rounds, from which `joins` draws,
      and `first` the clock of the server.
  """

  draw: Callable[[Key, int, int], Array]
  size: int
  expected: float | None = None
  joining: float = 1.0
  accounting: str | None = None
  by_rounds: bool = False

  @property
  def mean_size(self) -> float:
    """Return how many clients take part in a round on average."""
    return self.size if self.expected is None else self.expected


def fixed(num_clients: int, fraction: float, groups: int = 1) -> Sampler:
  """Return the sampler of as many clients in each round."""
  size = cohort_size(num_clients, fraction)

  def draw(key, first, rounds):
    return sample_cohorts(key, first, rounds, num_clients, size)

  return Sampler(draw, size, accounting='without_replacement')


def poisson(num_clients: int, fraction: float, groups: int = 1) -> Sampler:
  """Return the sampler of clients that join independently, in turns."""
  rate = fraction * groups
  size = poisson_places(num_clients // groups, rate)

  def draw(key, first, rounds):
    return poisson_cohorts(key, first, rounds, num_clients, size, groups)

  expected, kind = num_clients * fraction, 'cyclic' if groups > 1 else 'poisson'
  return Sampler(draw, size, expected, rate, kind, by_rounds=True)


def in_turn(num_clients: int, fraction: float, groups: int = 1) -> Sampler:
  """Return the sampler of clients who come again after all others.

  K mod C clients of each order, its last ones, are left out.
  """
  size = cohort_size(num_clients, fraction)
  turns = num_clients // size

  def cohort(key, number):
    key = jax.random.fold_in(key, number // turns)
    order = jax.random.permutation(key, num_clients)
    return lax.dynamic_slice_in_dim(order, number % turns * size, size)

  def draw(key, first, rounds):
    return jax.vmap(partial(cohort, key))(first + jnp.arange(rounds))

  return Sampler(draw, size)


# Of (num_clients, fraction, groups): groups are those of `cyclic` alone.
SAMPLINGS = {
  **{'fixed': fixed, 'poisson': poisson, 'cyclic': poisson},
  'in_turn': in_turn,
}
DEFAULT, TURNS = 'fixed', 'cyclic'


def everyone(num_clients: int) -> Sampler:
  """Return the sampler of all clients, in each round."""

  def draw(key, first, rounds):
    return jnp.tile(jnp.arange(num_clients), (rounds, 1))

  return Sampler(draw, num_clients, accounting='all')


def scheduled(cohorts: np.ndarray) -> Sampler:
  """Return the sampler of given cohorts [T, C], those of a simulation."""

  def draw(key, first, rounds):
    return jnp.asarray(cohorts[first : first + rounds])

  return Sampler(draw, cohorts.shape[1])


def checked(sampler: Sampler, num_clients: int, rounds: int) -> Sampler:
  """Return a user's sampler, which refuses what is no cohort, here already."""

  def draw(key, first, rounds):
    ids = np.asarray(sampler.draw(key, first, rounds))
    is_right = ids.shape == (rounds, sampler.size) and ids.dtype.kind in 'iu'
    if is_right:
      is_distinct = (np.diff(np.sort(ids, 1)) > 0).all()
      is_right = is_distinct and ids.min() >= 0 and ids.max() < num_clients
    if not is_right:
      raise bad_input(
        'sampling',
        got=f'an array of {ids.dtype} {[*ids.shape]} from `draw`',
        expected=f'whole numbers [{rounds}, {sampler.size}], each row of '
        f'distinct clients from 0 to {num_clients - 1}',
        cause='clients drawn with replacement, or rows taken for columns',
      )
    if first == 0 and not _is_of_round(sampler.draw, key):
      raise bad_input(
        'sampling',
        got='another cohort of round 1 from `draw(key, 0, 2)` than from '
        '`draw(key, 1, 1)`',
        expected='a cohort that follows from key and round alone: a run may '
        'stop and continue anywhere',
        choices=['jax.random.fold_in(key, round)'],
        cause='`first` that is not used, or numbers of numpy',
      )
    return jnp.asarray(ids, jnp.int32)

  draw(jax.random.key(0), 0, max(rounds, 1))
  return sampler._replace(draw=draw)


def _is_of_round(draw: Callable[[Key, int, int], Array], key: Key) -> bool:
  """Return whether the cohort of round 1 does not depend on the call."""
  try:
    return np.array_equal(draw(key, 0, 2)[1], draw(key, 1, 1)[0])
  except IndexError:  # cohorts of a file that has one
    return True


# ---- Cohorts without replacement ---------------------------------------------


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
  return jax.vmap(lambda key: sample_cohort(key, num_clients, size))(keys)


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
  key. The C clients with the least u are all that join, if these are at most C.
  Groups, of equal size and drawn from the key, take turns.
  """
  if num_groups > 1:
    groups_key = jax.random.fold_in(key, GROUPS)
    groups = jax.random.permutation(groups_key, num_clients) % num_groups  # [K]

  def cohort(number):
    keys = jax.vmap(partial(client_key, key, number))(jnp.arange(num_clients))
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

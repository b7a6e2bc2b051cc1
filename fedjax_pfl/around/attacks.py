"""Attacks on uploads: what clients send in the place of their change.

  m, s   mean and deviation (n - 1) of the changes of the honest in the cohort
  sign_flip  -m                                        (Allen-Zhu et al. 2020)
  ipm        -tau m, tau = 2: inner product manipulation    (Xie et al. 2019)
  alie       m + tau s, tau = 1.5: a little is enough    (Baruch et al. 2019)
  best_ipm   the same, with the tau that moves what the server makes of the
  best_alie  changes farthest from m, by a search (Shejwalkar et al. 2021)
  mimic      the change of the honest client with the least id
                                                  (Karimireddy et al. 2022)
  gaussian   tau N(0, 1) in each number, tau = 1
  infinite   infinity, absent: NaN

As in these papers attackers know the changes of all honest clients of their
cohort, send the same, and, for the best tau, know the server's rule and its f;
those of mimic, gaussian, infinite and absent need to know one change, or none.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.around.robust import shares
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, PyTree

EVALUATIONS = 20  # of the server's rule, in a search
FIRST_STEP, RATIO = 10.0, 0.8
TAU = {'sign_flip': 1.0, 'ipm': 2.0, 'alie': 1.5, 'gaussian': 1.0}


def mean_of(changes: PyTree, is_in: Array) -> PyTree:
  return trees.weighted_sum(changes, shares(is_in))


def deviation_of(changes: PyTree, is_in: Array, mean: PyTree) -> PyTree:
  """Return the deviation of each number, as of a sample."""
  square = lambda leaf, own: jnp.square(leaf - own)
  scale = is_in / jnp.maximum(jnp.sum(is_in) - 1, 1)
  squares = trees.weighted_sum(jax.tree.map(square, changes, mean), scale)
  return jax.tree.map(jnp.sqrt, squares)


def line_of(name: str, changes: PyTree, is_honest: Array) -> tuple:
  """Return start and direction of the changes start + tau direction."""
  mean = mean_of(changes, is_honest)
  if name.endswith('alie'):
    return mean, deviation_of(changes, is_honest, mean)
  return trees.zeros(mean), jax.tree.map(jnp.negative, mean)


def along(start: PyTree, direction: PyTree, tau: Array | float) -> PyTree:
  return jax.tree.map(lambda a, b: a + tau * b, start, direction)


def best_tau(damage: Callable, evaluations: int = EVALUATIONS) -> Array:
  """Return the tau from 0 on with the largest damage(tau) that a search finds.

  Steps double as long as each does more damage; then each is 0.8 of the last.
  """

  def propose(_, state):
    tau, most, step, grows = state
    value = damage(tau + step)
    is_more = value > most
    tau, most = jnp.where(is_more, tau + step, tau), jnp.maximum(value, most)
    grows &= is_more
    return tau, most, step * jnp.where(grows, 2, RATIO), grows

  none = jnp.zeros(())
  state = none, damage(none), none + FIRST_STEP, jnp.array(True)
  return lax.fori_loop(1, evaluations, propose, state)[0]


def forged(
  name: str,
  changes: PyTree,
  is_honest: Array,
  is_bad: Array,
  ids: Array,
  rng: Array,
  aggregated: Callable[[PyTree], PyTree],
  tau: float | None = None,
) -> PyTree:
  """Return the changes [C, ...] with those of attackers in their rows.

  aggregated: changes [C, ...] -> what the server makes of them.
  """
  if name in ('infinite', 'absent'):
    value = jnp.inf if name == 'infinite' else jnp.nan
    sent = jax.tree.map(lambda leaf: jnp.full_like(leaf, value), changes)
    return jax.vmap(trees.choose)(is_bad, sent, changes)
  if name == 'gaussian':
    leaves, structure = jax.tree.flatten(changes)
    keys = jax.random.split(rng, len(leaves))
    tau = TAU[name] if tau is None else tau
    sent = structure.unflatten(
      tau * jax.random.normal(key, leaf.shape, leaf.dtype)
      for key, leaf in zip(keys, leaves, strict=True)
    )
    return jax.vmap(trees.choose)(is_bad, sent, changes)

  def with_all(one):
    return jax.vmap(trees.choose, (0, None, 0))(is_bad, one, changes)

  if name == 'mimic':
    first = jnp.argmin(jnp.where(is_honest, ids, jnp.iinfo(ids.dtype).max))
    return with_all(trees.gather(changes, first))
  line = line_of(name, changes, is_honest)
  if name.startswith('best_'):
    mean = mean_of(changes, is_honest)

    def damage(tau):
      found = aggregated(with_all(along(*line, tau)))
      return optax.tree.norm(optax.tree.sub(found, mean))

    tau = best_tau(damage)
  return with_all(along(*line, TAU[name] if tau is None else tau))

"""The best round by TEST accuracy: an oracle, beside the honest last round.

Public tables print it now and then. It is no way to choose a model: it looks
at the examples by which the model is judged. So it stands apart from the
methods, and what is made with it is called `test_best` wherever it is stored.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.types import Array, PyTree, Scores


class Best(NamedTuple):
  """The best round so far."""

  round: Array  # [K] -1 before the first
  correct: Array  # [K] correct answers in that round
  models: PyTree = ()  # [K, ...] the models of that round, if wanted


def unseen(num_clients: int, models: PyTree = ()) -> Best:
  """Return what every round is better than; models give shapes alone."""
  none = jnp.full(num_clients, -1, jnp.int32)
  return Best(none, none, models)


def fold(
  best: Best,
  scores: Scores,
  number: int,
  models: PyTree = (),
  *,
  replace_ties: bool = False,
  together: bool = False,
) -> Best:
  """Return the best of the rounds so far and round `number`.

  Every client has a best round of its own or, `together`, all have the one
  with the most correct answers in all: the best pooled accuracy. Of equal
  rounds the first stays, with `replace_ties` the last.

  >>> best = fold(unseen(num_clients), scores, 1)
  """
  old, new = best.correct, scores.correct
  if together:
    old, new = (jnp.broadcast_to(jnp.sum(c), c.shape) for c in (old, new))
  wins = new >= old if replace_ties else new > old  # [K]

  def pick(one, other):
    return jnp.where(wins.reshape((-1,) + (1,) * (one.ndim - 1)), one, other)

  return jax.tree.map(
    pick, Best(jnp.full_like(best.round, number), scores.correct, models), best
  )

"""Choices by TEST accuracy: oracles, beside the honest last round.

Public tables print them now and then: of each client's best round, or of the
best member of a grid of views. It is no way to choose a model: it looks at
the examples by which the model is evaluated. So it stands apart from the
methods, and what is made with it is called `test_best` wherever it is stored.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.types import Array, PyTree, Scores
from fedjax_pfl.evaluation.grid import families, grid
from fedjax_pfl.evaluation.summary import other_measures


class Best(NamedTuple):
  """The best round so far."""

  round: Array  # [K] -1 before the first
  correct: Array  # [K] correct answers in that round
  models: PyTree = ()  # [K, ...] the models of that round, if wanted


def init_best(
  num_clients: int, models: PyTree = (), dtype: Any = jnp.int32
) -> Best:
  """Return what every round is better than; models give shapes alone.

  `dtype` is that of `correct`: no whole number where it is a mean of batches.
  """
  none = jnp.full(num_clients, -1, jnp.int32)
  return Best(none, none.astype(dtype), models)


def update_best(
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


def best_together(accuracy: np.ndarray) -> int:
  """Return the column of [K, G] with the best mean; of equals the first."""
  return int(np.argmax(np.mean(accuracy, axis=0)))


def best_of_each(accuracy: np.ndarray) -> np.ndarray:
  """Return the best column of every row of [K, G], of equals the first."""
  return np.argmax(accuracy, axis=1)


def released_choice(
  tables: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
  """Return every measure [K] as SuPerFed's final public code has it.

    max over g in {g_1, .., g_K} of table[k, g],  g_i the best of client i

  The tables [K, G] are accuracy, by which clients choose, and others. For
  accuracy that is the client's best; of losses and of calibration errors it
  is the worst, and of top5 the best, that ANY client's choice would give.
  """
  chosen = np.unique(best_of_each(tables['accuracy']))
  return {name: table[:, chosen].max(1) for name, table in tables.items()}


def best_views(
  scores: Mapping[str, Scores], train_count: Any
) -> dict[str, dict[str, Any]]:
  """Return the choices within every family of views, for result.json.

    together   the view with the best mean over clients, for all: its mean,
               its deviation over clients with ddof 0 (std) and 1 (std_sample)
    each       every client its own best view
    released   `released_choice`: means over clients

  Over the clients that have examples for training and for testing.
  """
  return {
    family: _best_view(views, grid(scores, family)[1], train_count)
    for family, views in families(scores).items()
  }


def _best_view(
  views: list[str], table: Scores, train_count: Any
) -> dict[str, Any]:
  is_used = (table.count[:, 0] > 0) & (np.asarray(train_count) > 0)
  if not is_used.any():
    return {}
  table = jax.tree.map(lambda rows: rows[is_used], table)  # [K, G]
  accuracy = table.correct / table.count
  column = best_together(accuracy)
  common, own = 100 * accuracy[:, column], 100 * accuracy.max(1)
  released = released_choice(
    {'accuracy': 100 * accuracy, **other_measures(table)}
  )
  return {
    'together': {
      'view': views[column],
      'mean': float(common.mean()),
      'std': float(common.std()),
      'std_sample': float(common.std(ddof=1)) if common.size > 1 else None,
    },
    'each': {'mean': float(own.mean()), 'std': float(own.std())},
    'released': {name: float(one.mean()) for name, one in released.items()},
  }

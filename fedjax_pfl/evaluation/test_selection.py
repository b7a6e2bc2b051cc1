"""Test selection: the best round or view by TEST accuracy.

Some published tables have the accuracy of each client's best round, or of the
best member of a family of views. It is optimistic: the choice is made with the
examples on which the model is evaluated. Results have it apart from those of
the last round, under the key `test_best`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, PyTree, Scores
from fedjax_pfl.evaluation.summary import other_measures
from fedjax_pfl.evaluation.view_families import families, grid


class Best(NamedTuple):
  """The best round so far, of every client."""

  round: Array  # [K] -1 before the first
  correct: Array  # [K] correct predictions in that round
  models: PyTree = ()  # [K, ...] the models of that round, if requested


def init_best(num_clients: int, dtype: Any = jnp.int32) -> Best:
  """Return the state before the first round: any round is better.

  `dtype` is that of `correct`: a float where it is a mean over batches.
  """
  before = jnp.full(num_clients, -1, jnp.int32)
  return Best(before, before.astype(dtype))


def update_best(
  best: Best,
  scores: Scores,
  number: int,
  models: PyTree = (),
  *,
  replace_ties: bool = False,
  shared_round: bool = False,
) -> Best:
  """Return the best of the rounds so far and round `number`.

  Every client has a best round of its own or, with `shared_round`, all have
  the one with the most correct predictions in total: the best pooled accuracy.
  Of equal rounds the first is kept, with `replace_ties` the last.
  """
  old, new = best.correct, scores.correct
  if shared_round:
    old, new = (jnp.broadcast_to(jnp.sum(c), c.shape) for c in (old, new))
  wins = new >= old if replace_ties else new > old  # [K]
  latest = Best(jnp.full_like(best.round, number), scores.correct, models)
  return jax.vmap(trees.choose)(wins, latest, best)


def released_choice(tables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Return every measure [K] as SuPerFed's final public code has it.

    max over g in {g_1, .., g_K} of table[k, g],  g_i the best of client i

  `tables` [K, G] has 'accuracy', by which the g_i are chosen, and others. For
  accuracy the maximum is the client's best; for losses and calibration errors
  it is the worst, for top5 the best, over the choices of ALL clients. Of equal
  columns the first is chosen.
  """
  chosen = np.unique(np.argmax(tables['accuracy'], axis=1))
  return {name: table[:, chosen].max(1) for name, table in tables.items()}


def best_views(
  scores: Mapping[str, Scores], train_count: Any
) -> dict[str, dict[str, Any]]:
  """Return the best view of every family, for result.json.

    together   the view with the best mean over clients, shared by all: its
               mean, and its deviation with ddof 0 (std) and 1 (std_sample);
               of equal ones the first
    each       the best view of each client
    released   `released_choice`: means over clients

  Over the clients that have training and test examples.
  """
  best = {}
  for family, views in families(scores).items():
    table = grid(scores, views)
    is_used = (table.count[:, 0] > 0) & (np.asarray(train_count) > 0)
    used = jax.tree.map(lambda rows, own=is_used: rows[own], table)  # [K, G]
    best[family] = _best_view(views, used) if is_used.any() else {}
  return best


def _best_view(views: list[str], table: Scores) -> dict[str, Any]:
  accuracy = table.correct / table.count
  column = np.argmax(np.mean(accuracy, axis=0))
  shared, own = 100 * accuracy[:, column], 100 * accuracy.max(1)
  tables = {'accuracy': 100 * accuracy, **other_measures(table)}
  released = released_choice(tables)
  return {
    'together': {
      'view': views[column],
      'mean': float(shared.mean()),
      'std': float(shared.std()),
      'std_sample': float(shared.std(ddof=1)) if shared.size > 1 else None,
    },
    'each': {'mean': float(own.mean()), 'std': float(own.std())},
    'released': {name: float(own.mean()) for name, own in released.items()},
  }

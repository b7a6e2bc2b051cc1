"""How alike weights are: layers of different clients, classes of a head.

  mean over i != j of cos(w_i, w_j) = (|sum_i u_i|^2 - K) / (K (K - 1)),
                                       u_i = w_i / |w_i|

so that the models of all clients need not be held at once.

A layer is a top-level name of the parameters, in order of depth, and its
weights are all kernels below that name (of convolutions and linear maps) as
one vector. Biases and the scales and shifts of BatchNorm are left out: one
scale near 1 in all clients would hide what the kernels do.
"""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.client import personalization
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task

BLOCK = 10  # clients between two signs of life


def mean_pairwise_cosine(rows: Array) -> Array:
  """Return the mean of cos(w_i, w_j) over all pairs of different rows [K, D].

  NaN for a single row, and where a row is zero.
  """
  units = rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)
  return _from_sum(jnp.sum(units, 0), rows.shape[0])


def head_row_cosine(params: Params) -> float:
  """Return how alike the classes' weight vectors in the head are.

  The rows of the paper's head are the columns of this kernel [F, Y]. About 0
  where entries are random around 0, and m^2 / (m^2 + s^2) where they have mean
  m and deviation s: 0.9967 for U(0.45, 0.55), the paper's "similar" head.
  """
  return float(mean_pairwise_cosine(jnp.asarray(params['head']['kernel']).T))


def layer_weights(params: Params) -> dict[str, Array]:
  """Return the kernels of every layer as one vector, in order of depth."""
  kernels: dict[str, list[Array]] = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    names = [key.key for key in path]
    if names[-1] == 'kernel':
      kernels.setdefault(names[0], []).append(jnp.ravel(leaf))
  return {
    layer: jnp.concatenate(kernels[layer])
    for layer in sorted(kernels, key=_depth)
  }


def finetuning_cosines(
  task: Task,
  params: Params,
  train: ClientData,
  ids: np.ndarray,
  key: Key,
  personal: Finetuning,
  on_progress: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
  """Return {layer: mean cosine between the clients `ids`}, each [E + 1].

  At epochs 0, 1, .., E = max(personal.epochs) of the fine-tuning of one global
  model. A client's key is that of the run's evaluation: fold_in(key, id).
  """
  personal = personal._replace(epochs=tuple(range(1, max(personal.epochs) + 1)))
  sum_fn, sums = make_sum_of_units(task, personal), None
  for first in range(0, len(ids), BLOCK):
    block = jnp.asarray(ids[first : first + BLOCK])
    part = sum_fn(params, train, block, key)
    sums = part if sums is None else jax.tree.map(jnp.add, sums, part)
    on_progress(min(first + BLOCK, len(ids)))
  cosines = {
    layer: np.asarray(jax.vmap(lambda s: _from_sum(s, len(ids)))(rows))
    for layer, rows in sums.items()
  }
  return {layer: cosines[layer] for layer in layer_weights(params)}


def make_sum_of_units(
  task: Task, personal: Finetuning
) -> Callable[..., dict[str, Array]]:
  """Return (params, train, ids, key) -> {layer: sum of u_i [E + 1, D]}."""

  def units(params, train, client_id, key):
    data = ClientData(
      train.x, train.y, train.index[client_id], train.count[client_id]
    )
    models = personalization.finetune(
      task, params, data, jax.random.fold_in(key, client_id), personal
    )
    moments = [params, *models.values()]  # after 0, 1, .., E epochs
    return jax.tree.map(
      lambda *rows: jnp.stack([row / jnp.linalg.norm(row) for row in rows]),
      *[layer_weights(model) for model in moments],
    )

  @jax.jit
  def sum_of_units(params, train, ids, key):
    def add(sums, client_id):
      more = units(params, train, client_id, key)
      return jax.tree.map(jnp.add, sums, more), None

    shapes = jax.eval_shape(units, params, train, ids[0], key)
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return lax.scan(add, start, ids)[0]

  return sum_of_units


def _from_sum(total: Array, number: int) -> Array:
  if number < 2:
    return jnp.asarray(jnp.nan)
  return (jnp.sum(total**2) - number) / (number * (number - 1.0))


def _depth(layer: str) -> tuple:
  """Return what sorts stem, block2, block10, head."""
  number = re.search(r'\d+', layer)
  return layer == 'head', int(number[0]) if number else -1, layer

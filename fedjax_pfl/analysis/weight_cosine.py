"""Cosine similarity of weights: layers of clients, classes of a head.

  mean over i != j of cos(w_i, w_j) = (|sum_i u_i|^2 - K) / (K (K - 1)),
                                       u_i = w_i / |w_i|

The sum of unit vectors is enough: the models of all clients need not be in
memory at once.

A layer is a top-level name of the parameters, in order of depth, and its
weights are all kernels below that name (of convolutions and linear maps) as
one vector. Biases and BatchNorm's scales and shifts are left out: one scale
near 1 in all clients would hide what the kernels do.
"""

import re

import jax
import jax.numpy as jnp

from fedjax_pfl.core.types import Array, Params


def mean_pairwise_cosine(rows: Array) -> Array:
  """Return the mean of cos(w_i, w_j) over all pairs of different rows [K, D].

  NaN for a single row, and where a row is zero.
  """
  units = rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)
  return cosine_of_sum(jnp.sum(units, 0), rows.shape[0])


def cosine_of_sum(total: Array, number: int) -> Array:
  """Return the mean pairwise cosine of `number` unit vectors with this sum."""
  if number < 2:
    return jnp.asarray(jnp.nan)
  return (jnp.sum(total**2) - number) / (number * (number - 1.0))


def head_row_cosine(params: Params) -> float:
  """Return the mean cosine between the classes' weight vectors in the head.

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


def _depth(layer: str) -> tuple:
  """Return a key that sorts stem, block2, block10, head."""
  number = re.search(r'\d+', layer)
  return layer == 'head', int(number[0]) if number else -1, layer

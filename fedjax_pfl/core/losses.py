"""The terms of objectives: losses of a batch, distances, a squared cosine.

Functions of parameter trees are compiled by themselves: where local training
runs step by step in Python, they are one call and not one for every tensor.
They are of what is learned: running statistics of BatchNorm do not count.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.norm_stats import learned
from fedjax_pfl.core.types import Array, Batch, ExampleLoss, PyTree


def batch_loss(
  logits: Array, batch: Batch, loss: ExampleLoss | None = None
) -> Array:
  """Return the masked mean of a loss of examples; None is cross-entropy."""
  if loss is None:
    if jnp.issubdtype(batch.y.dtype, jnp.floating):
      raise bad_input(
        'labels',
        got=f'{batch.y.dtype}, with the loss cross_entropy',
        expected='classes, whole numbers from 0; or a loss for other labels',
        choices=['squared', 'huber', 'logistic', 'cox'],
      )
    return masked_cross_entropy(logits, batch)
  return masked_mean(loss(logits, batch.y), batch)


def masked_cross_entropy(logits: Array, batch: Batch) -> Array:
  """Return sum_b mask_b CE(logits_b, y_b) / max(sum_b mask_b, 1)."""
  chosen = jnp.take_along_axis(logits, batch.y[:, None], 1)[:, 0]
  losses = jax.nn.logsumexp(logits, 1) - chosen
  return masked_mean(losses, batch)


def masked_mean(values: Array, batch: Batch) -> Array:
  """Return sum_b mask_b values_b / max(sum_b mask_b, 1) of values [B]."""
  return (batch.mask * values).sum() / jnp.maximum(batch.mask.sum(), 1)


def divergence(teacher: Array, pupil: Array, batch: Batch) -> Array:
  """Return the mean KL(sg(softmax(teacher)) || softmax(pupil)) of logits."""
  q = jax.nn.log_softmax(lax.stop_gradient(teacher))
  p = jax.nn.log_softmax(pupil)
  return masked_mean(jnp.sum(jnp.exp(q) * (q - p), axis=1), batch)


def norm(rows: Array, axis: int | None = -1, keepdims: bool = False) -> Array:
  """Return the norms of rows, with gradient 0 at 0; axis None: of all."""
  square = jnp.sum(rows**2, axis, keepdims=keepdims)
  is_zero = square == 0
  return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, square)))


def with_term(loss: Callable, term: Callable[[PyTree], Array]) -> Callable:
  """Return v -> L(v) + term(v), a loss that reports L beside the sum."""

  def total(params, batch, rng):
    cross_entropy = loss(params, batch, rng)
    return cross_entropy + term(params), {'cross_entropies': cross_entropy}

  return total


def float_dtype(x: Array) -> Any:
  """Return the dtype of model inputs, a float's if they are whole numbers."""
  is_float = jnp.issubdtype(x.dtype, jnp.floating)
  return x.dtype if is_float else jnp.result_type(float)


@jax.jit
def sum_squares(tree: PyTree, anchor: PyTree) -> Array:
  """Return sum_t |v_t - w_t|^2 over all tensors."""
  tree, anchor = learned(tree), learned(anchor)
  squares = jax.tree.map(lambda v, w: jnp.sum((v - w) ** 2), tree, anchor)
  return sum(jax.tree.leaves(squares))


@jax.jit
def sum_norms(tree: PyTree, anchor: PyTree) -> Array:
  """Return sum_t |v_t - w_t|, the norms of tensors, not squared.

  The gradient at v_t = w_t, where every round begins, is 0; that of a plain
  square root would be NaN.
  """
  tree, anchor = learned(tree), learned(anchor)
  norms = jax.tree.map(lambda v, w: norm(v - w, axis=None), tree, anchor)
  return sum(jax.tree.leaves(norms))


@jax.jit
def squared_cosine(tree: PyTree, other: PyTree, offset: float = 0.0) -> Array:
  """Return cos^2 = s^2 / (a b) of two trees, each taken as one vector.

    s = sum_t <v_t, w_t> + offset P,  a = sum_t |v_t|^2,  b = sum_t |w_t|^2

  with P entries. Without an offset, the value and the gradient at a tree of
  zeros are 0.
  """
  tree, other = learned(tree), learned(other)
  products = jax.tree.map(lambda v, w: jnp.sum(v * w), tree, other)
  size = sum(leaf.size for leaf in jax.tree.leaves(tree))
  s = sum(jax.tree.leaves(products)) + offset * size
  a, b = (
    sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(vector))
    for vector in (tree, other)
  )
  return s**2 / jnp.maximum(a * b, 1e-12)


def with_gradient(leaf: Array, gradient: Array) -> Array:
  """Return 0, whose gradient with respect to the leaf is the one given.

  So a fit carries what is no parameter, such as a running mean: the optimiser
  of the leaf adds the "gradient" to it.
  """
  gradient = lax.stop_gradient(gradient)
  product = jnp.vdot(gradient, leaf, precision='highest')
  return product - lax.stop_gradient(product)

"""A wide model: several encoders, and one linear head on all their features.

  F(x)      = [E_1(x), ..., E_M(x)]                        in cluster order
  logits(x) = F(x) K + b            K [M F, Y], b [Y]

Its parameters are {'encoders': bodies [M, ...], 'head': {'kernel', 'bias'}}.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.losses import batch_loss, float_dtype
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import (
  Array,
  ClientData,
  Key,
  Outputs,
  Params,
  PyTree,
  Task,
)

POOL_BATCH = 500  # images whose features are computed at a time


def widen(task: Task, number: int) -> Task:
  """Return the task of `number` of the task's encoders and one head."""

  def init(key: Key) -> Params:
    encoders_key, head_key = jax.random.split(key)
    models = jax.vmap(task.init)(jax.random.split(encoders_key, number))
    head = fresh_head(task, number, head_key)
    return {'encoders': encoders_of(task, models), 'head': head}

  def classify(params: Params, rows: Array) -> Array:
    return task.classify({'head': params['head']}, rows)

  def features(params: Params, x: Array, mask: Array) -> Array:
    of_one = lambda model: task.features(model, x, mask)
    return _concatenated(of_one, task, params)

  def train_outputs(params, batch, key) -> Outputs:
    of_one = lambda model: task.train_outputs(model, batch, key).features
    rows = _concatenated(of_one, task, params)
    return Outputs(rows, classify(params, rows))

  def loss(params, batch, key) -> Array:
    logits = train_outputs(params, batch, key).logits
    return batch_loss(logits, batch, task.example_loss)

  shapes = jax.eval_shape(init, jax.eval_shape(jax.random.key, 0))
  return task._replace(
    init=init,
    features=features,
    logits=lambda params, x, mask: classify(params, features(params, x, mask)),
    loss=loss,
    train_outputs=train_outputs,
    classify=classify,
    is_head=trees.layer_mask(shapes, ['head']),
    norm_leaves=None,  # by the names of leaves, for whoever asks
  )


def _concatenated(features_fn, task: Task, params: Params) -> Array:
  """Return the concatenated features of all encoders: [B, M F].

  On a CPU one encoder after the other: one product fills all cores.
  """
  head = trees.select(_shapes(task), task.is_head)
  no_head = jax.tree.map(jnp.zeros_like, head)

  def encode(encoder):
    return features_fn(trees.combine(encoder, no_head))

  each = lax.map if target() == 'cpu' else lambda f, xs: jax.vmap(f)(xs)
  rows = each(encode, params['encoders'])  # [M, B, F]
  return jnp.moveaxis(rows, 0, 1).reshape(rows.shape[1], -1)


def encoders_of(task: Task, models: Params) -> Params:
  """Return the bodies of models [M, ...]; their heads become holes."""
  return trees.select(models, trees.invert(task.is_head))


def fresh_head(task: Task, number: int, key: Key) -> Params:
  """Return K, b ~ U(-1/sqrt(M F), 1/sqrt(M F)), as in PyTorch."""
  kernel = _shapes(task)['head']['kernel']
  width, classes = number * kernel.shape[0], kernel.shape[1]
  bound = width**-0.5

  def draw(key, *shape):
    return jax.random.uniform(key, shape, kernel.dtype, -bound, bound)

  first, second = jax.random.split(key)
  return {'kernel': draw(first, width, classes), 'bias': draw(second, classes)}


def warm_head(models: Params) -> Params:
  """Return the head whose logits are the sum of those of models [M, ...]."""
  kernels, biases = models['head']['kernel'], models['head']['bias']
  kernel = kernels.reshape(-1, kernels.shape[-1])  # of [M, F, Y]
  return {'kernel': kernel, 'bias': biases.sum(0)}


def _shapes(task: Task) -> PyTree:
  return jax.eval_shape(task.init, jax.eval_shape(jax.random.key, 0))


def pool_features(wide: Task, params: Params, data: ClientData) -> ClientData:
  """Return the data with the features F(x) [P, M F] in place of the images x.

  Exact where images are not augmented and no layer depends on the batch.
  """
  size = min(POOL_BATCH, data.x.shape[0])
  starts = jnp.arange(0, data.x.shape[0], size)

  @jax.jit
  def rows_from(params, x, start):
    rows = jnp.minimum(start + jnp.arange(size), x.shape[0] - 1)
    inputs = wide.normalise(x[rows], jax.random.key(0))
    return wide.features(params, inputs, jnp.ones(size, float_dtype(inputs)))

  rows = lax.map(lambda start: rows_from(params, data.x, start), starts)
  flat = rows.reshape(-1, rows.shape[-1])[: data.x.shape[0]]
  return data._replace(x=flat)

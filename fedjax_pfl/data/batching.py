"""Divide the examples of one client into batches, epoch after epoch.

Each client has its own number of batches. The last may be partial: its missing
rows are masked.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import (
  Array,
  Batch,
  ClientData,
  Key,
  PyTree,
  Transform,
)


class Batching(NamedTuple):
  """How the examples of a client become batches and steps.

  By default an epoch has one step for each batch. `steps`, a function of the
  number of batches, gives another number of steps; when the batches run out,
  they are reshuffled. With `batches_per_step` above 1 (only with `steps`) a
  step has so many consecutive batches, stacked. With `steps_per_batch` above 1
  (only without `steps`) each batch, transformed once, has so many consecutive
  steps.

  >>> augment, _ = pfl.make_transforms('digits', (8, 8, 1))
  >>> pfl.Batching(size=50, epochs=2, transform=augment).shuffle
  True
  """

  size: int  # B, examples of a batch
  epochs: int  # over the examples of the client
  transform: Transform  # of the images of a batch: augmentation
  shuffle: bool = True  # in every epoch; False: in stored order
  steps: Callable[[Array], Array] | None = None  # of an epoch, from batches
  batches_per_step: int = 1  # the batch of a step is [batches_per_step, B, ...]
  steps_per_batch: int = 1  # consecutive steps on one batch
  steps_together: int = 1  # of which a deadline leaves all or none


def rows_in_order(
  data: ClientData, order: Array, position: Array, size: int
) -> tuple[Array, Array, Array]:
  """Return images, labels and mask of batch `position` in an order of rows."""
  slots = position * size + jnp.arange(size)  # [B]
  rows = data.index[order[jnp.minimum(slots, order.shape[0] - 1)]]
  return data.x[rows], *of_labels(data.y[rows], slots < data.count)


def block_of(data: ClientData, first: Array, count: Array) -> ClientData:
  """Return `count` examples of the client, from number `first` on."""
  last = data.index.shape[0] - 1
  places = jnp.minimum(first + jnp.arange(last + 1), last)
  return data._replace(index=data.index[places], count=count)


def of_labels(y: Array, real: Array) -> tuple[Array, Array]:
  """Return the labels of rows, and which are real: [B], or [B L] of tokens.

  A token without a label, -1, is masked as padding is. Labels that are floats
  are [B, M], and -1 where an example is padding.
  """
  if is_float(y):
    return jnp.where(real[:, None], y, -1), real
  if y.ndim == 1:
    return y, real
  real = (real[:, None] & (y >= 0)).ravel()
  return jnp.maximum(y, 0).ravel(), real


def is_float(y: Array) -> bool:
  """Return whether labels are numbers, bits or events, and no classes."""
  return jnp.issubdtype(y.dtype, jnp.floating)


def num_labels(data: ClientData) -> Array:
  """Return how many labels a client has, one for each example or token: []."""
  if data.y.ndim == 1 or is_float(data.y):
    return data.count
  real = jnp.arange(data.index.shape[0]) < data.count
  return jnp.sum(of_labels(data.y[data.index], real)[1], dtype=jnp.int32)


def fold_examples(
  step: Callable[[PyTree, Batch], PyTree],
  start: PyTree,
  data: ClientData,
  transform: Transform,
  rng: Key,
  batch_size: int,
) -> PyTree:
  """Return `start` after step(total, batch) of every batch, in stored order."""
  length = data.index.shape[0]
  order, size = jnp.arange(length), min(batch_size, length)

  def add(position, total):
    x, y, real = rows_in_order(data, order, position, size)
    x = transform(x, jax.random.fold_in(rng, position))
    return step(total, Batch(x, y, real.astype(float_dtype(x))))

  return lax.fori_loop(0, -(-data.count // size), add, start)


def steps_of_epoch(data: ClientData, batching: Batching) -> Array:
  """Return the number of steps of this client in an epoch: []."""
  batches = -(-data.count // batching.size)
  if batching.steps is None:
    return batching.steps_per_batch * batches
  return jnp.where(batches > 0, batching.steps(batches), 0)


def steps_in_time(data: ClientData, batching: Batching, steps: Array) -> Array:
  """Return how many of these steps the client does before the deadline: [].

    floor(work * steps / u) u

  u: steps that are done together or not at all, those on one batch and
  `steps_together`. Without a deadline a client does all steps.
  """
  if data.work is None:
    return steps
  unit = batching.steps_per_batch * batching.steps_together
  return (data.work * steps / unit).astype(jnp.int32) * unit


def max_steps_of_epoch(data: ClientData, batching: Batching) -> int:
  """Return the maximum number of steps for clients of this padding."""
  most = -(-data.index.shape[0] // batching.size)
  if batching.steps is None:
    return batching.steps_per_batch * most
  return max(int(batching.steps(batches)) for batches in range(1, most + 1))


def batches_of_epoch(
  data: ClientData, rng: Key, batching: Batching
) -> Callable[[Array, Key], tuple[Batch, Key]]:
  """Return (position, key) -> (batch, key) for the steps of one epoch.

  The key given is that of the epoch's steps; the key returned is for the rest
  of the step, such as dropout.
  """
  order = _order(data, rng, batching)
  if batching.steps is not None:
    # The first pass over the batches has the order of an ordinary epoch.
    later = [
      _order(data, jax.random.fold_in(rng, number), batching)
      for number in range(1, _max_passes(data.index.shape[0], batching))
    ]
    orders = jnp.stack([order, *later])
    batches = jnp.maximum(-(-data.count // batching.size), 1)

  def batch_at(position, key):
    if batching.steps is None:
      return _batch(data, order, position, key, batching)
    pass_order = orders[position // batches]
    return _batch(data, pass_order, position % batches, key, batching)

  def stacked_at(position, key):
    number = batching.batches_per_step
    if number == 1:
      return batch_at(position, key)
    *keys, key = jax.random.split(key, number + 1)
    first = number * position
    rows = [
      batch_at(first + at, batch_key)[0] for at, batch_key in enumerate(keys)
    ]
    return trees.stack(rows), key

  def step_at(position, steps_rng):
    each = batching.steps_per_batch
    number = position // each
    batch, key = stacked_at(number, jax.random.fold_in(steps_rng, number))
    if each > 1:
      key = jax.random.fold_in(key, position % each)
    return batch, key

  return step_at


def _max_passes(num_examples, batching):
  most = -(-num_examples // batching.size)
  return max(
    -(-int(batching.steps(batches)) * batching.batches_per_step // batches)
    for batches in range(1, most + 1)
  )


def _batch(data, order, position, rng, batching):
  augment_rng, loss_rng = jax.random.split(rng)
  x, y, real = rows_in_order(data, order, position, batching.size)
  x = batching.transform(x, augment_rng)
  return Batch(x, y, real.astype(float_dtype(x))), loss_rng


def _order(data, rng, batching):
  if not batching.shuffle:
    return jnp.arange(data.index.shape[0])
  return random_order(data, rng)


def random_order(data: ClientData, rng: Key) -> Array:
  """Return places [N] of the client's examples, the real ones first.

  The random number of a place does not depend on the padding after it.
  """
  places = jnp.arange(data.index.shape[0])
  draw = jax.random.uniform(rng, places.shape, jnp.float32)
  return jnp.argsort(jnp.where(places < data.count, draw, 2.0))

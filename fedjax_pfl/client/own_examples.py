"""Sums over all examples of a client, batch after batch.

Each batch is its own BatchNorm batch, as in the public code of FedBABU.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import local_training
from fedjax_pfl.core import losses
from fedjax_pfl.core.algorithm import Senders
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import (
  Batching,
  fold_examples,
  num_labels,
  random_order,
)


def shuffled(data: ClientData, rng: Key) -> ClientData:
  """Return the client with its examples in a random order.

  Partitions may sort them by class: in stored order a batch has one or two.
  """
  return data._replace(index=data.index[random_order(data, rng)])


def class_sums(
  task: Task,
  params: Params,
  data: ClientData,
  rng: Key,
  batch_size: int,
  features: Callable[[Params, Array, Array], Array] | None = None,
) -> tuple[Array, Array]:
  """Return the sums [Y, F] of features, and the counts [Y], of every class."""
  features = features or task.features

  def add(total, batch):
    sums, counts = total
    rows = features(params, batch.x, batch.mask)  # [B, F]
    sums = sums.at[batch.y].add(batch.mask[:, None] * rows)
    return sums, counts.at[batch.y].add(batch.mask)

  rows = jax.eval_shape(task.normalise, data.x[:1], rng)
  dtype = losses.float_dtype(rows)
  f = jax.eval_shape(features, params, rows, jnp.ones(1, dtype))
  zeros = (
    jnp.zeros((task.num_classes, f.shape[1]), f.dtype),
    jnp.zeros(task.num_classes, dtype),
  )
  return fold_examples(add, zeros, data, task.normalise, rng, batch_size)


def class_means(
  task: Task, params: Params, data: ClientData, rng: Key, batch_size: int
) -> tuple[Array, Array]:
  """Return the means [Y, F] of features, and 1 of each class that is there."""
  data = shuffled(data, jax.random.fold_in(rng, 1))
  sums, counts = class_sums(task, params, data, rng, batch_size)
  means = sums / jnp.maximum(counts, 1)[:, None]
  return means, (counts > 0).astype(means.dtype)


def of_means(means: Array, present: Array, ids: Array) -> ClientData:
  """Return the means [C, Y, F] of clients as examples, for a server's fit.

  Without those of absent classes, and in the order of the clients' ids: batches
  do not depend on the order of the cohort.
  """
  number, classes, width = means.shape
  places = ids[:, None] * classes + jnp.arange(classes)
  order = jnp.lexsort((places.ravel(), ~present.ravel()))
  labels = jnp.tile(jnp.arange(classes), number)
  count = jnp.sum(present, dtype=jnp.int32)
  return ClientData(means.reshape(-1, width), labels, order, count)


def fit_to_means(
  loss: Callable,
  start: Params,
  up: tuple[Array, Array],
  senders: Senders,
  hp: Any,
) -> Params:
  """Return what a server trains on the means [C, Y, F] of a cohort."""
  means, present = up
  data = of_means(means, present > 0, senders.ids)
  tx, unchanged = optax.sgd(hp.server_learning_rate), lambda x, rng: x
  batching = Batching(
    hp.train.batch_size, hp.server_epochs, unchanged, hp.train.shuffle
  )
  params, _ = local_training.fit(
    loss, start, data, senders.rng, tx=tx, batching=batching
  )
  return params


def mean_losses(
  task: Task, models: Params, data: ClientData, rng: Key, batch_size: int
) -> Array:
  """Return the mean loss of each of the models [M, ...], as in testing: [M]."""
  data = shuffled(data, jax.random.fold_in(rng, 2))

  def loss(params, batch):
    logits = task.logits(params, batch.x, batch.mask)
    return losses.batch_loss(logits, batch, task.example_loss)

  def add(total, batch):
    return total + batch.mask.sum() * jax.vmap(loss, (0, None))(models, batch)

  leaf = jax.tree.leaves(models)[0]
  zeros = jnp.zeros(len(leaf), leaf.dtype)
  total = fold_examples(add, zeros, data, task.normalise, rng, batch_size)
  return total / jnp.maximum(num_labels(data), 1)

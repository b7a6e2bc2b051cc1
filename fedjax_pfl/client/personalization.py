"""The ways in which one global model becomes a client's own.

  initial      the global model as it is
  finetuned    after some epochs on the client's own training data
  templates    without its head: the nearest class mean of features

FedAvg, FedBABU and their relatives are all evaluated by these views.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import local_training
from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, Mask, Params, Task
from fedjax_pfl.data.batching import Batching, rows_in_order

PARTS = ('full', 'body', 'head')
# What a client adapts on: its training data, or half of its tests.
ADAPT_ON = ('train', 'test_half')


class Finetuning(NamedTuple):
  """How a client turns the global model into its own."""

  epochs: tuple[int, ...] = (5,)  # tau_f; several: one run, seen at each
  trainable: str = 'full'  # or 'body', 'head', layers: 'conv1+bn1'
  learning_rate: float = 1e-3
  momentum: float = 0.9
  batch_size: int = 50
  shuffle: bool = True
  template_batch: int = 128  # BatchNorm sees the classes of such a batch


class Templates(NamedTuple):
  """A body whose head is replaced by class means of its features."""

  params: Params
  means: Array  # [Y, F]
  present: Array  # [Y] whether the client has examples of the class


class Euclidean(NamedTuple):
  """The view that predicts the class of the nearest mean."""

  model: Templates


class Cosine(NamedTuple):
  """The view that predicts the class of the mean of the smallest angle."""

  model: Templates


View = Params | Euclidean | Cosine


def halves(data: ClientData) -> tuple[ClientData, ClientData]:
  """Return every other example of every client [K, N], and the rest.

  By turns, because clients hold their examples sorted by class: halves in a
  row would hold other classes. The rest has the odd one.
  """
  width = data.index.shape[1]
  few = data.count // 2  # [K]
  return (
    data._replace(index=data.index[:, min(1, width - 1) :: 2], count=few),
    data._replace(index=data.index[:, ::2], count=data.count - few),
  )


def part_mask(task: Task, part: str, field: str = 'part') -> Mask:
  """Return the mask of 'full', 'body', 'head', or layers: 'conv1+bn1'.

  Layers are the names at the top of the parameters; `field` is what the user
  calls the setting.
  """
  masks = {
    'full': trees.everything(task.is_head),
    'body': trees.invert(task.is_head),
    'head': task.is_head,
  }
  if part in masks:
    return masks[part]
  layers, known = part.split('+'), trees.layer_names(task.is_head)
  for layer in layers:
    if layer not in known:
      raise bad_input(
        field,
        got=layer,
        expected="a part of the model, or names of its layers joined by '+'",
        choices=dict.fromkeys((*PARTS, *known)),
        cause='a typing error, or a layer of another model',
      )
  return trees.layer_mask(task.is_head, layers)


def views(
  task: Task,
  params: Params,
  data: ClientData,
  rng: Key,
  personal: Finetuning,
) -> dict[str, View]:
  """Return every model that a global model may be evaluated by.

  What a caller does not use is never computed: compilers drop it.
  """
  model = class_templates(task, params, data, rng, personal.template_batch)
  return {
    'initial': params,
    **finetune(task, params, data, rng, personal),
    'templates_euclidean': Euclidean(model),
    'templates_cosine': Cosine(model),
  }


def finetune(
  task: Task,
  params: Params,
  data: ClientData,
  rng: Key,
  personal: Finetuning,
  loss: local_training.Loss | None = None,
) -> dict[str, Params]:
  """Return 'finetuned', the model after the last of `epochs`, and the others.

  With epochs (1, 5, 10): 'finetuned_1', 'finetuned_5' and 'finetuned'. Plain
  SGD with momentum on the part; the rest of the model stays as it is. The loss
  is the task's, unless another is given.
  """
  stops = tuple(sorted(set(personal.epochs)))
  tx = optax.sgd(personal.learning_rate, personal.momentum or None)
  models, _ = local_training.fit_with_snapshots(
    loss or task.loss,
    params,
    data,
    rng,
    tx=local_training.freeze_except(
      tx, part_mask(task, personal.trainable, 'finetune.trainable')
    ),
    batching=Batching(
      personal.batch_size, stops[-1], task.augment, personal.shuffle
    ),
    stops=stops,
  )
  return dict(zip(names_of(stops), models, strict=True))


def names_of(stops: tuple[int, ...]) -> list[str]:
  """Return what the models after so many epochs are called as views."""
  return [f'finetuned_{stop}' for stop in stops[:-1]] + ['finetuned']


def class_templates(
  task: Task, params: Params, data: ClientData, rng: Key, batch_size: int
) -> Templates:
  """Return t_c = mean of f(x_j) over the client's examples j of class c.

  Images go in stored order, through the training transform, in batches of
  `batch_size`; each is its own BatchNorm batch, as in the public code.
  """
  size = min(batch_size, data.index.shape[0])
  order = jnp.arange(data.index.shape[0])

  def add_batch(position, carry):
    sums, counts = carry
    x, y, real = rows_in_order(data, order, position, size)
    x = task.augment(x, jax.random.fold_in(rng, position))
    real = real.astype(x.dtype)
    features = task.features(params, x, real)  # [B, F]
    sums = sums.at[y].add(real[:, None] * features)
    return sums, counts.at[y].add(real)

  rows = jax.eval_shape(task.augment, data.x[:1], rng)
  width = jax.eval_shape(task.features, params, rows, jnp.ones(1, rows.dtype))
  zeros = (
    jnp.zeros((task.num_classes, width.shape[1]), width.dtype),
    jnp.zeros(task.num_classes, rows.dtype),
  )
  sums, counts = lax.fori_loop(0, -(-data.count // size), add_batch, zeros)
  means = sums / jnp.maximum(counts, 1)[:, None]
  return Templates(params, means, counts > 0)


def make_predict(task: Task):
  """Return (view, x, mask) -> logits [B, Y] for the views of this file.

  Templates give -|f - t_c| or cos(f, t_c); a class that the client has no
  example of is at -inf and never predicted.
  """

  def predict(view: View, x: Array, mask: Array) -> Array:
    if not isinstance(view, Euclidean | Cosine):
      return task.logits(view, x, mask)
    params, means, present = view.model
    f = task.features(params, x, mask)  # [B, F]
    near = _cosine if isinstance(view, Cosine) else _minus_distance
    return jnp.where(present, near(f, means), -jnp.inf)  # [B, Y]

  return predict


def _minus_distance(f, means):
  return -jnp.linalg.norm(f[:, None] - means, axis=-1)


def _cosine(f, means):
  def unit(v):
    return v / jnp.maximum(jnp.linalg.norm(v, axis=-1, keepdims=True), 1e-12)

  return jnp.sum(unit(f)[:, None] * unit(means), axis=-1)

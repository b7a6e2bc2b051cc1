"""Personalise a global model for one client: the views of most methods.

initial      the global model as it is
finetuned    after some epochs on the client's training data
templates    the nearest class mean of its features, in place of its head
"""

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import local_training, optimisers, own_examples
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.records import EVALUATES, field, record
from fedjax_pfl.core.rules import is_number
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import CLASSES, Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import Batching

EPOCHS = rules.Rule(
  lambda value: (
    isinstance(value, tuple | list)
    and len(value) > 0
    and all(rules.is_int(v) and v >= 0 for v in value)
    and max(value) >= 1
  ),
  'whole numbers of epochs, one of them 1 or more; 0 is the view initial',
  'a single number: write (5,)',
)
# Whether the model has these layers is checked when the model is known.
TRAINABLE = rules.Rule(
  lambda value: isinstance(value, str) and all(value.split('+')),
  "'full', 'body', 'head', or names of layers joined by '+'",
  'a list of layers: write "conv1+bn1"',
)


@record('finetune.')
class Finetuning:
  """How a client fine-tunes the global model on its training data.

  Args:
    epochs: the numbers of epochs (tau_f) after which the model is evaluated;
      several are snapshots of one fit, with a view for each of them:
      finetuned_1, .., finetuned (the last) in `views`; 0 lets validation
      choose the view initial
    trainable: the part that is trained: full, body, head, or layers: conv1+bn1
    learning_rate: of SGD, constant
    factors: so many times that rate in further fits of the same model, with
      views finetuned_x0.3, ..; none: ()
    momentum: of SGD; its buffer begins at zero
    batch_size: B, examples of a step
    shuffle: whether each epoch has a new order of the examples.
    template_batch: batch size of the forward passes whose features make the
      class templates; with BatchNorm each batch has its own statistics.

  >>> finetuning = pfl.Finetuning(epochs=(1, 5), trainable='head')
  >>> fedbabu = pfl.algorithm('fedbabu')
  >>> fedbabu.HParams(finetune=finetuning).finetune.epochs
  (1, 5)
  """

  epochs: tuple[int, ...] = field(
    (5,), EPOCHS, EVALUATES, largest=local_training.MAX_EPOCHS
  )
  trainable: str = field('full', TRAINABLE, EVALUATES)
  learning_rate: float = field(
    1e-3, optimisers.LEARNING_RATE, EVALUATES, traced=True
  )
  factors: tuple[float, ...] = field(
    (),
    rules.tuple_of(
      lambda value: (
        is_number(value) and 0 < value != 1 and math.isfinite(value)
      ),
      'numbers above 0 other than 1, which is always there',
      'a single number: write (0.1,)',
    ),
    EVALUATES,
  )
  momentum: float = field(0.9, rules.momentum(), EVALUATES, traced=True)
  batch_size: int = field(50, rules.count('examples'), EVALUATES)
  shuffle: bool = True
  template_batch: int = 128


class Templates(NamedTuple):
  """A model whose head is replaced by class means of its features."""

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


def views(
  task: Task, params: Params, data: ClientData, rng: Key, finetuning: Finetuning
) -> dict[str, View]:
  """Return all views of a global model.

  XLA removes the computation of views that the caller does not use.
  """
  models = {
    'initial': params,
    **finetune(task, params, data, rng, finetuning),
  }
  if task.labels != CLASSES:
    return models
  model = class_templates(task, params, data, rng, finetuning.template_batch)
  return {
    **models,
    'templates_euclidean': Euclidean(model),
    'templates_cosine': Cosine(model),
  }


def finetune(
  task: Task,
  params: Params,
  data: ClientData,
  rng: Key,
  finetuning: Finetuning,
  loss: local_training.Loss | None = None,
) -> dict[str, Params]:
  """Return the models after each number of epochs, by the names of their views.

  With epochs (1, 5, 10): 'finetuned_1', 'finetuned_5' and 'finetuned'. SGD with
  momentum on the part `trainable`, without weight decay. The loss is the
  task's, unless another is given. With factors (0.1,) also 'finetuned_x0.1'.
  """
  stops = tuple(sorted({*finetuning.epochs} - {0}))
  mask = part_mask(task, finetuning.trainable, 'finetune.trainable')
  size, shuffle = finetuning.batch_size, finetuning.shuffle

  def fit(rate: float | Array) -> tuple[Params, ...]:
    tx = optimisers.sgd(rate, finetuning.momentum)
    _, info = local_training.fit(
      loss or task.loss,
      params,
      data,
      rng,
      tx=optimisers.freeze_except(tx, mask),
      batching=Batching(size, stops[-1], task.augment, shuffle),
      stops=stops,
    )
    return info.snapshots

  rate, factors = finetuning.learning_rate, finetuning.factors
  names = names_of(stops, factors)
  if not factors:
    return dict(zip(names, fit(rate), strict=True))
  fits = jax.lax.map(fit, rate * jnp.array([1.0, *factors]))
  models = [trees.gather(fits, at) for at in range(1 + len(factors))]
  return dict(zip(names, itertools.chain(*models), strict=True))


def names_of(
  stops: tuple[int, ...], factors: Iterable[float] = ()
) -> list[str]:
  """Return the names of the views after these epochs, by rates."""
  names = [f'finetuned_{stop}' for stop in stops[:-1]] + ['finetuned']
  marks = '', *(f'_x{factor:g}' for factor in factors)
  return [f'{name}{mark}' for mark in marks for name in names]


def class_templates(
  task: Task, params: Params, data: ClientData, rng: Key, batch_size: int
) -> Templates:
  """Return t_c = mean of f(x_j) over the client's examples j of class c."""
  task = task._replace(normalise=task.augment)
  sums, counts = own_examples.class_sums(task, params, data, rng, batch_size)
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
    if isinstance(view, Cosine):
      closeness = jnp.sum(_unit(f)[:, None] * _unit(means), axis=-1)
    else:
      closeness = -jnp.linalg.norm(f[:, None] - means, axis=-1)
    return jnp.where(present, closeness, -jnp.inf)  # [B, Y]

  return predict


def _unit(v):
  return v / jnp.maximum(jnp.linalg.norm(v, axis=-1, keepdims=True), 1e-12)

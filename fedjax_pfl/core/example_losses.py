"""The losses by name, and the kind of label that each one takes.

  classes   y [B] whole numbers          cross_entropy
  numbers   y [B, M] floats              squared, huber
  bits      y [B, M] of 0 and 1          logistic
  events    y [B, 2] (time, event)       cox

A model has Y outputs for classes, M for numbers and bits, one for events. All
labels but classes are floats; where an example is padding they are -1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import (
  BITS,
  CLASSES,
  EVENTS,
  NUMBERS,
  Array,
  ExampleLoss,
)

CROSS_ENTROPY = 'cross_entropy'


class Loss(NamedTuple):
  """A loss of examples, and the kind of its labels."""

  of_examples: ExampleLoss | None  # None: cross-entropy
  labels: str


def squared(outputs: Array, y: Array) -> Array:
  """Return mean_m (z_m - y_m)^2 of every example."""
  return jnp.mean((outputs - y) ** 2, axis=1)


def huber(outputs: Array, y: Array) -> Array:
  """Return mean_m of d^2 / 2 where d = |z_m - y_m| <= 1, else d - 1/2."""
  apart = jnp.abs(outputs - y)
  near = jnp.minimum(apart, 1)
  return jnp.mean(near * (apart - near / 2), axis=1)


def logistic(outputs: Array, y: Array) -> Array:
  """Return mean_m of log(1 + exp(z_m)) - y_m z_m."""
  return jnp.mean(jax.nn.softplus(outputs) - y * outputs, axis=1)


def cox(outputs: Array, y: Array) -> Array:
  """Return -e_b (z_b - log sum_{j: t_j >= t_b} exp z_j), the risk of a batch.

  The partial likelihood of Cox (1972), with Breslow's ties; those at risk are
  of the batch. Padding has time -1, so that it is never at risk.
  """
  z, (time, event) = outputs[:, 0], y.T
  at_risk = (time >= time[:, None]) & (time >= 0)  # [B, B]
  at_risk |= jnp.eye(len(z), dtype=bool)  # of padding: a finite sum
  risk = jnp.where(at_risk, z, -jnp.inf)
  return event * (jax.nn.logsumexp(risk, axis=1) - z)


LOSSES = {
  CROSS_ENTROPY: Loss(None, CLASSES),
  'squared': Loss(squared, NUMBERS),
  'huber': Loss(huber, NUMBERS),
  'logistic': Loss(logistic, BITS),
  'cox': Loss(cox, EVENTS),
}


def labels_of(loss: str) -> str:
  """Return the kind of labels; a loss of the user's own has classes."""
  return LOSSES[loss].labels if loss in LOSSES else CLASSES


def check_classes(loss: str, what: str) -> None:
  """Refuse a question about classes to a run whose labels are others."""
  if labels_of(loss) != CLASSES:
    known = [name for name in LOSSES if labels_of(name) == CLASSES]
    raise bad_input(
      'loss',
      got=f'{loss}, whose labels are {labels_of(loss)}',
      expected=f'a loss of classes: {what}',
      choices=known,
    )

"""Calibration: predictions in bins of confidence, and the errors from them.

  ECE = sum_b n_b / n |conf_b - acc_b|      expected calibration error
  MCE = max_b |conf_b - acc_b|              maximum calibration error

The confidence in a prediction, the first class of largest probability, is
that probability. Bin b of B holds the n_b predictions whose confidence is in
(b / B, (b + 1) / B]; conf_b is their mean confidence, acc_b the share of
correct ones. Empty bins do not count.

Both errors follow from sums, and the bins of batches add up: the errors are
those of all examples, not means over batches.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.types import Array

NUM_BINS = 15


class Bins(NamedTuple):
  """Sums over the predictions of each bin; the bins of two sets add up."""

  count: Array  # [bins]
  confidence: Array  # [bins]
  hits: Array  # [bins] correct predictions


def empty(dtype: np.dtype) -> Bins:
  """Return the bins of no predictions."""
  none = jnp.zeros(NUM_BINS, jnp.int32)
  return Bins(none, jnp.zeros(NUM_BINS, dtype), none)


def fill(
  logits: Array, y: Array, real: Array, num_bins: int = NUM_BINS
) -> Bins:
  """Return the bins of one batch.

  logits [B, Y], labels y [B]; real [B] is False where a row is padding.
  """
  confidence = jnp.max(jax.nn.softmax(logits), -1)  # [B]
  hit = jnp.argmax(logits, -1) == y
  # In numpy, which divides: XLA multiplies by 1 / B instead, and the edge 0.2
  # would differ from 3 / 15.
  dtype = np.dtype(confidence.dtype)
  edges = np.arange(1, num_bins, dtype=dtype) / dtype.type(num_bins)
  number = jnp.searchsorted(jnp.asarray(edges), confidence, side='left')
  member = real[:, None] & (
    number[:, None] == jnp.arange(num_bins)
  )  # [B, bins]
  return Bins(
    jnp.sum(member, 0, dtype=jnp.int32),
    jnp.sum(jnp.where(member, confidence[:, None], 0), 0),
    jnp.sum(member & hit[:, None], 0, dtype=jnp.int32),
  )


def errors(bins: Bins) -> tuple[Array, Array]:
  """Return expected and maximum calibration error; 0 without examples."""
  gap = jnp.abs(bins.confidence - bins.hits)  # [bins] n_b |conf_b - acc_b|
  expected = jnp.sum(gap) / jnp.maximum(jnp.sum(bins.count), 1)
  return expected, jnp.max(gap / jnp.maximum(bins.count, 1))

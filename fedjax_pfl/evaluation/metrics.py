"""Score one view of one client on the test examples of that client.

  exact           every metric is that of all test examples
  batches         the mean over batches of the metric of each batch; a smaller
                  last batch has the same weight as the others
  whole_batches   the same without a smaller last batch; but correct predictions
                  are divided by the number of ALL test examples, so those left
                  out count as wrong

SuPerFed's tables were made with 'batches' (its final public code) and
'whole_batches' (its first), with the batch size of training. Both overestimate
calibration errors; 'whole_batches' underestimates accuracy: with 50 test
examples in batches of 20 it is at most 80 %. They exist for comparison with
those tables.

Where each token of an example has a label, all numbers are of tokens.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.algorithm import View
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import Array, ClientData, PyTree, Scores, Transform
from fedjax_pfl.data.batching import fold_examples, num_labels
from fedjax_pfl.evaluation import calibration
from fedjax_pfl.evaluation.label_metrics import or_worst

Predict = Callable[[View, Array, Array], Array]  # (view, x, mask): [B, Y]
TEST_BATCH = 128  # images per forward pass, as in the FedBABU paper's code
TOP_K = 5
# Of labels of tokens alone: loss / ln 2, and exp(loss).
OF_TOKENS = ('bits_per_token', 'perplexity')


class Tally(NamedTuple):
  """Sums over examples; the sums of two sets of examples add up."""

  correct: Array  # []
  top5: Array  # []
  loss: Array  # []
  bins: calibration.Bins


def score_view(
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
) -> Scores:
  """Return the scores of one view on all test examples: the rule 'exact'."""

  def add(carry, logits, y, real):
    return _plus(carry, tally(logits, y, real))

  none, dtype = jnp.zeros((), jnp.int32), _dtype(normalise, test)
  start = Tally(none, none, jnp.zeros((), dtype), calibration.empty(dtype))
  total = fold_batches(add, start, predict, view, test, normalise, batch_size)
  count = num_labels(test)
  _, _, loss, *errors = shares(total, count)
  of_tokens = None
  if test.y.ndim > 1:
    measures = loss / math.log(2), jnp.exp(loss)
    of_tokens = dict(zip(OF_TOKENS, measures, strict=True))
  return Scores(total.correct, count, loss, total.top5, *errors, own=of_tokens)


def score_batches(
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
  *,
  full_only: bool = False,
) -> Scores:
  """Return the means of the scores of the batches: the rule 'batches'.

  With `full_only` those of full batches: 'whole_batches'. `correct` is defined
  by correct / count = accuracy, and is no integer.
  """

  def add(carry, logits, y, real):
    sums, number = carry
    seen = jnp.sum(real, dtype=jnp.int32)
    counts = (seen == batch_size) if full_only else (seen > 0)
    batch = shares(tally(logits, y, real), seen)
    batch = [jnp.where(counts, share, 0) for share in batch]
    return _plus(sums, batch), number + counts

  start = [jnp.zeros((), _dtype(normalise, test))] * 5, jnp.zeros((), jnp.int32)
  sums, number = fold_batches(
    add, start, predict, view, test, normalise, batch_size
  )
  means = [total / jnp.maximum(number, 1) for total in sums]
  correct, top5, loss, *errors = means
  seen = number * batch_size if full_only else test.count
  return Scores(correct * seen, test.count, loss, top5 * seen, *errors)


def _plus(sums: PyTree, batch: PyTree) -> PyTree:
  return jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, batch)


def _dtype(normalise: Transform, test: ClientData) -> np.dtype:
  """Return the float type of the model's inputs."""
  return float_dtype(jax.eval_shape(normalise, test.x[:1], jax.random.key(0)))


SCORINGS: dict[str, Callable[..., Scores]] = {
  'exact': score_view,
  'batches': score_batches,
  'whole_batches': partial(score_batches, full_only=True),
}


def tally(logits: Array, y: Array, real: Array) -> Tally:
  """Return the sums over one batch.

  logits [B, Y], labels y [B]; real [B] is False where a row is padding. Logits
  that are not finite are wrong, with confidence.
  """
  logits = or_worst(logits, y)
  loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)[:, 0]
  hit = (jnp.argmax(logits, -1) == y) & real
  in_top = is_in_top_k(logits, y) & real
  return Tally(
    jnp.sum(hit, dtype=jnp.int32),
    jnp.sum(in_top, dtype=jnp.int32),
    jnp.sum(jnp.where(real, loss, 0)),
    calibration.fill(logits, y, real),
  )


def is_in_top_k(logits: Array, y: Array) -> Array:
  """Return whether the class y has one of the TOP_K largest logits: [B] bool.

  Of equal logits that of the first class ranks higher, as in argmax. A NaN
  ranks lowest.
  """
  num_classes = logits.shape[-1]
  logit = jnp.take_along_axis(logits, y[:, None], 1)  # [B, 1]
  later = jnp.arange(num_classes) > y[:, None]  # [B, Y]
  beaten = (logit > logits) | ((logit == logits) & later)
  return jnp.sum(beaten, -1) >= num_classes - TOP_K


def shares(total: Tally, count: Array) -> tuple[Array, ...]:
  """Return accuracy, top5, loss, ece and mce of `count` examples; 0 of none.

  All are from 0 to 1, not percentages, but for the loss.
  """
  # In the dtype of the losses: JAX would turn integers into float32.
  number = jnp.maximum(count, 1).astype(total.loss.dtype)
  means = (part / number for part in (total.correct, total.top5, total.loss))
  return *means, *calibration.errors(total.bins)


def fold_batches(
  add: Callable[[PyTree, Array, Array, Array], PyTree],
  start: PyTree,
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
) -> PyTree:
  """Return the carry after add(carry, logits, y, real) of every batch.

  The batches [B] of one client's test examples, in stored order; `real` is
  False where a row is padding. Logits are whatever `predict` returns.
  """

  def add_batch(carry, batch):
    logits = predict(view, batch.x, batch.mask)
    return add(carry, logits, batch.y, batch.mask > 0)

  rng = jax.random.key(0)  # which `normalise` does not use
  return fold_examples(add_batch, start, test, normalise, rng, batch_size)

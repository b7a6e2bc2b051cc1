"""How one view of one client is evaluated on that client's tests.

  exact           every number is that of the whole test set
  batches         each number is computed in each batch, and the mean of the
                  batches is taken, a short last one counting as much as all
  whole_batches   the same without a short last batch; but hits are divided by
                  the number of ALL tests, so what is left out counts as wrong

SuPerFed's tables were made with the second (its final public code) and the
third (its first), in batches of the training's size. Both make calibration
look worse than it is, the third accuracy as well: at most 80 % can be reached
with 50 tests in batches of 20. They are here for comparison with those tables.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.algorithm import View
from fedjax_pfl.core.types import Array, ClientData, PyTree, Scores, Transform
from fedjax_pfl.data.batching import rows_in_order
from fedjax_pfl.evaluation import calibration

Predict = Callable[[View, Array, Array], Array]  # (view, x, mask): [B, Y]
TEST_BATCH = 128  # images per forward pass, as in the FedBABU paper's code
NUM_BEST = 5  # of top5


class Tally(NamedTuple):
  """Sums over examples; those of two sets of examples add up."""

  correct: Array  # []
  top5: Array  # []
  loss: Array  # []
  bins: calibration.Bins


class Measures(NamedTuple):
  """The numbers of one set of examples."""

  accuracy: Array  # [] the share that is right, like all others no percentage
  top5: Array
  loss: Array
  ece: Array
  mce: Array


class ClassScores(NamedTuple):
  """How one view of every client does on the examples of every class."""

  correct: Array  # [K, Y] number of correct predictions
  count: Array  # [K, Y] number of test examples


def score_view(
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
  *,
  num_bins: int = calibration.NUM_BINS,
) -> Scores:
  """Return the scores of one view on the whole test set: 'exact'."""

  def add(carry, logits, y, real):
    one = tally(logits, y, real, num_bins)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), carry, one)

  rows = jax.eval_shape(normalise, test.x[:1], jax.random.key(0))
  none = jnp.zeros((), jnp.int32)
  bins = calibration.empty(num_bins, rows.dtype)
  total = fold_batches(
    add,
    Tally(none, none, jnp.zeros((), rows.dtype), bins),
    predict,
    view,
    test,
    normalise,
    batch_size,
  )
  mean = measures(total, test.count)
  return Scores(
    total.correct, test.count, mean.loss, total.top5, mean.ece, mean.mce
  )


def score_batches(
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
  *,
  num_bins: int = calibration.NUM_BINS,
  is_whole: bool = False,
) -> Scores:
  """Return the means of the scores of the batches: 'batches'.

  With `is_whole` of whole batches alone: 'whole_batches'. `correct` is what
  makes correct / count the accuracy, and no whole number.
  """

  def add(carry, logits, y, real):
    sums, number = carry
    seen = jnp.sum(real, dtype=jnp.int32)
    one = measures(tally(logits, y, real, num_bins), seen)
    counts = (seen == batch_size) if is_whole else (seen > 0)
    sums = jax.tree.map(
      lambda a, b: a + jnp.where(counts, b, 0).astype(a.dtype), sums, one
    )
    return sums, number + counts

  rows = jax.eval_shape(normalise, test.x[:1], jax.random.key(0))
  start = Measures(*[jnp.zeros((), rows.dtype)] * len(Measures._fields))
  sums, number = fold_batches(
    add,
    (start, jnp.zeros((), jnp.int32)),
    predict,
    view,
    test,
    normalise,
    batch_size,
  )
  mean = jax.tree.map(lambda total: total / jnp.maximum(number, 1), sums)
  seen = number * batch_size if is_whole else test.count
  return Scores(
    mean.accuracy * seen,
    test.count,
    mean.loss,
    mean.top5 * seen,
    mean.ece,
    mean.mce,
  )


SCORINGS: dict[str, Callable[..., Scores]] = {
  'exact': score_view,
  'batches': score_batches,
  'whole_batches': partial(score_batches, is_whole=True),
}


def tally(logits: Array, y: Array, real: Array, num_bins: int) -> Tally:
  """Return the sums over one batch: logits [B, Y], labels [B], truth [B]."""
  loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)[:, 0]
  hit = (jnp.argmax(logits, -1) == y) & real
  near = is_among_best(logits, y) & real
  return Tally(
    jnp.sum(hit, dtype=jnp.int32),
    jnp.sum(near, dtype=jnp.int32),
    jnp.sum(jnp.where(real, loss, 0)),
    calibration.fill(logits, y, real, num_bins),
  )


def is_among_best(logits: Array, y: Array, number: int = NUM_BEST) -> Array:
  """Return whether the class y is among the best so many: [B] bool.

  Of equal logits the first class is better, as argmax has it. Those that are
  no numbers win against nothing.
  """
  num_classes = logits.shape[-1]
  own = jnp.take_along_axis(logits, y[:, None], 1)  # [B, 1]
  later = jnp.arange(num_classes) > y[:, None]  # [B, Y]
  beaten = (own > logits) | ((own == logits) & later)
  return jnp.sum(beaten, -1) >= num_classes - number


def measures(total: Tally, count: Array) -> Measures:
  """Return the numbers of `count` examples; 0 of none."""
  ece, mce = calibration.errors(total.bins)
  # In the dtype of the losses: of whole numbers jax makes 32 bits.
  number = jnp.maximum(count, 1).astype(total.loss.dtype)
  return Measures(
    total.correct / number,
    total.top5 / number,
    total.loss / number,
    ece,
    mce,
  )


def score_classes(
  num_classes: int,
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
) -> ClassScores:
  """Return the correct answers and the examples of every class of one view."""

  def add(carry, logits, y, real):
    hit = (jnp.argmax(logits, -1) == y) & real
    return ClassScores(
      carry.correct.at[y].add(hit.astype(jnp.int32)),
      carry.count.at[y].add(real.astype(jnp.int32)),
    )

  none = jnp.zeros(num_classes, jnp.int32)  # [Y]
  start = ClassScores(none, none)
  return fold_batches(add, start, predict, view, test, normalise, batch_size)


def fold_batches(
  add: Callable[[PyTree, Array, Array, Array], PyTree],
  start: PyTree,
  predict: Predict,
  view: View,
  test: ClientData,
  normalise: Transform,
  batch_size: int = TEST_BATCH,
) -> PyTree:
  """Return add(.. add(start, logits, y, real) .., logits, y, real).

  The batches [B] of one client's tests in stored order; `real` is False where
  a row is padding. What `predict` returns is called logits here.
  """
  size = min(batch_size, test.index.shape[0])
  order = jnp.arange(test.index.shape[0])

  def add_batch(position, carry):
    x, y, real = rows_in_order(test, order, position, size)
    x = normalise(x, jax.random.key(0))
    return add(carry, predict(view, x, real.astype(x.dtype)), y, real)

  return lax.fori_loop(0, -(-test.count // size), add_batch, start)

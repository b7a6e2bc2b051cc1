"""Metrics of one client by name: of classes, bits, numbers and events.

Each is a function (outputs [N, Y], labels, mask [N]) -> [], labels [N] of
classes or [N, M] of others, mask 0 for padding. Equal to scikit-learn's of the
same name where that is defined, c_index to Harrell's (1996); NaN where it is
not. Bits are M problems of two classes, whose mean over those with both classes
is taken; so are the classes of auroc and auprc, each against the others.

NaN is a property of labels alone: outputs that are not finite, as of a model
that diverged in fine-tuning, are replaced by the worst ones before (or_worst).
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.types import BITS, CLASSES, EVENTS, NUMBERS, Array
from fedjax_pfl.data.batching import is_float

NAN = jnp.nan
CERTAIN = 20.0  # a logit beside 0: all others share a probability of 2e-9


def or_worst(z: Array, y: Array) -> Array:
  """Return the outputs, the worst ones in place of those that are not finite.

  A class has probability 0, that after it 1; of bits and numbers the error is
  infinite; of events all risks of the client are in the order of their times.
  """
  if not is_float(y):  # a logit may be -inf: a class that is ruled out
    is_lost = ~jnp.isfinite(z.max(-1, keepdims=True))
    after = (jnp.arange(z.shape[1]) - y[:, None]) % z.shape[1]  # 0: the label
    worst = jnp.where(after == 0, -jnp.inf, CERTAIN * (after == 1))
  elif z.shape == y.shape:
    is_lost, worst = ~jnp.isfinite(z), jnp.where(y > 0.5, -jnp.inf, jnp.inf)
  else:
    time, event = y.T
    is_lost = ~jnp.isfinite(z).all()
    worst = jnp.argsort(jnp.lexsort((-event, time)))[:, None]
  return jnp.where(is_lost, worst.astype(z.dtype), z)


# ---- of classes and bits -----------------------------------------------------


def accuracy(z: Array, y: Array, mask: Array) -> Array:
  """Return the share of right answers, of bits the mean over M."""
  right = (z > 0) == (y > 0.5) if is_float(y) else jnp.argmax(z, -1) == y
  return _mean(right, mask)


def auroc(z: Array, y: Array, mask: Array) -> Array:
  """Return the chance that a positive has a higher score than a negative."""

  def of_column(score, truth):
    negatives = jnp.sort(jnp.where(truth | (mask == 0), jnp.inf, score))
    below, most = (
      jnp.searchsorted(negatives, score, side) for side in ('left', 'right')
    )
    number = jnp.sum(mask * ~truth)
    rank = (below + jnp.minimum(most, number)) / (2 * number)
    return _mean(rank, mask * truth)

  return _over_columns(of_column, z, y, mask)


def auprc(z: Array, y: Array, mask: Array) -> Array:
  """Return the mean over positives of the precision at their score."""

  def of_column(score, truth):
    def at_least(chosen):  # how many of these have a score of this or more
      lower = jnp.sort(jnp.where(chosen, score, -jnp.inf))
      number = len(score) - jnp.searchsorted(lower, score, 'left')
      return jnp.minimum(number, chosen.sum())  # a score may be -inf

    precision = at_least(truth & (mask > 0)) / at_least(mask > 0)
    return _mean(precision, mask * truth)

  return _over_columns(of_column, z, y, mask)


def brier(z: Array, y: Array, mask: Array) -> Array:
  """Return the mean of (p - y)^2; of three classes or more sum_c of it."""
  probability, truth = _columns(z, y)
  probability = jax.nn.sigmoid(z) if is_float(y) else probability
  if not is_float(y) and z.shape[1] == 2:
    probability = jax.nn.sigmoid(probability)
  errors = (probability - truth) ** 2
  return _mean(errors.mean(1) if is_float(y) else errors.sum(1), mask)


def macro_f1(z: Array, y: Array, mask: Array) -> Array:
  """Return the mean of F1 over classes that are there, or are predicted."""
  return _by_class(lambda hit, real, said: (2 * hit, real + said), z, y, mask)


def balanced_accuracy(z: Array, y: Array, mask: Array) -> Array:
  """Return the mean over classes that are there of the share of right ones."""
  return _by_class(lambda hit, real, said: (hit, real), z, y, mask)


def _by_class(parts, z: Array, y: Array, mask: Array) -> Array:
  """Return the mean of a ratio over classes whose denominator is not 0."""

  def of(predicted, truth, number):
    count = lambda rows: mask @ rows.astype(mask.dtype)  # [number]
    said, real = (
      jax.nn.one_hot(rows, number, dtype=bool) for rows in (predicted, truth)
    )
    above, below = parts(count(said & real), count(real), count(said))
    is_there = below > 0
    ratio = jnp.where(is_there, above / jnp.where(is_there, below, 1), 0)
    return ratio.sum() / is_there.sum()

  if not is_float(y):
    return of(jnp.argmax(z, -1), y, z.shape[1])
  of_column = jax.vmap(lambda a, b: of(a, b, 2), 1)
  return of_column((z > 0).astype(int), (y > 0.5).astype(int)).mean()


def _columns(z: Array, y: Array) -> tuple[Array, Array]:
  """Return scores [N, C] and truth [N, C] bool, a column for each problem."""
  if is_float(y):
    return z, y > 0.5
  if z.shape[1] == 2:
    return z[:, 1:] - z[:, :1], (y == 1)[:, None]
  return jax.nn.softmax(z), jax.nn.one_hot(y, z.shape[1], dtype=bool)


def _over_columns(of_column, z: Array, y: Array, mask: Array) -> Array:
  """Return the mean over columns that have both classes; NaN without any."""
  scores, truth = _columns(z, y)
  positive = mask @ truth.astype(mask.dtype)
  known = (positive > 0) & (positive < mask.sum())
  values = jax.vmap(of_column, 1)(scores, truth)
  return jnp.where(known, values, 0).sum() / known.sum()


# ---- of numbers --------------------------------------------------------------


def rmse(z: Array, y: Array, mask: Array) -> Array:
  """Return sqrt of the mean squared error, the mean over M."""
  return jnp.sqrt(_of_rows((z - y) ** 2, mask)).mean()


def mae(z: Array, y: Array, mask: Array) -> Array:
  """Return the mean absolute error, the mean over M."""
  return _of_rows(jnp.abs(z - y), mask).mean()


def r2(z: Array, y: Array, mask: Array) -> Array:
  """Return 1 - sum (z - y)^2 / sum (y - mean)^2, the mean over M."""
  spread = _of_rows((y - _of_rows(y, mask)) ** 2, mask)
  error = _of_rows((z - y) ** 2, mask)
  return jnp.mean(jnp.where(spread > 0, 1 - error / spread, NAN))


def _of_rows(values: Array, mask: Array) -> Array:
  """Return the mean over rows [N, M] that are real: [M]."""
  return jnp.where(mask[:, None] > 0, values, 0).sum(0) / mask.sum()


def _mean(values: Array, mask: Array) -> Array:
  """Return the mean of values [N] or [N, M] over rows where mask is 1."""
  values = values if values.ndim == 1 else values.mean(1)
  return jnp.where(mask > 0, values, 0).sum() / mask.sum()


# ---- of events ---------------------------------------------------------------


def c_index(z: Array, y: Array, mask: Array) -> Array:
  """Return the share of pairs whose higher risk has the earlier event.

  Pairs (i, j) with an event at t_i, and t_i < t_j, or t_j = t_i and no event;
  equal risks count a half.
  """
  risk, (time, event) = z[:, 0], y.T
  event = (event > 0) & (mask > 0)

  def of_row(row):
    later = (time > row[1]) | ((time == row[1]) & ~event)
    pairs = row[2] * later * mask
    right = jnp.where(row[0] > risk, 1.0, jnp.where(row[0] == risk, 0.5, 0))
    return jnp.sum(pairs * right), jnp.sum(pairs)

  right, pairs = lax.map(of_row, (risk, time, event))
  return right.sum() / pairs.sum()


# Which labels a metric is of.
KINDS = {
  **dict.fromkeys(
    ('accuracy', 'auroc', 'auprc', 'macro_f1', 'balanced_accuracy', 'brier'),
    (CLASSES, BITS),
  ),
  **dict.fromkeys(('rmse', 'mae', 'r2'), (NUMBERS,)),
  'c_index': (EVENTS,),
}
# The number of a run that tables, choices and verdicts are of.
MAIN = {CLASSES: 'accuracy', BITS: 'accuracy', NUMBERS: 'rmse'}
MAIN[EVENTS] = 'c_index'

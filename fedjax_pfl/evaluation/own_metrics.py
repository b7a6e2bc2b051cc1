"""Metrics of the user's own, beside the scores of every view.

  value = metric(logits [N, Y], labels [N], mask [N])        one number a client

of all test examples of one client; mask is 0 where a row is padding. What is
reported is the mean over clients for which the value is finite: NaN says that
it is not defined for a client, such as the recall of a class that it has not
got. The models are applied to the tests once more.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.types import Array, ClientData, PyTree, Scores
from fedjax_pfl.evaluation.metrics import TEST_BATCH, Predict, fold_batches

Metric = Callable[[Array, Array, Array], Array]
Metrics = Mapping[str, Metric]
# Numbers that a summary has already, and fields of a file with scores.
TAKEN = {'accuracy', 'mean', 'std', 'pooled', 'worst_decile', 'interval'}
TAKEN |= {'num_clients', 'num_left_out', *Scores._fields}


def with_metrics(
  score_fn: Callable[..., PyTree], metrics: Metrics | None
) -> Callable[..., PyTree]:
  """Return the function of scores, which have these metrics as `own`."""
  if not metrics:
    return score_fn

  def score(predict, view, test, normalise, batch_size=TEST_BATCH):
    scores = score_fn(predict, view, test, normalise, batch_size)
    logits = all_logits(predict, view, test, normalise, batch_size)
    mask = jnp.arange(len(logits)) < test.count
    labels = test.y[test.index]
    rows = logits, labels, mask.astype(float_dtype(logits))
    own = {name: metric(*rows) for name, metric in metrics.items()}
    return scores._replace(own=own)

  return score


def all_logits(
  predict: Predict, view: PyTree, test: ClientData, normalise, batch_size: int
) -> Array:
  """Return the logits of all rows of a client [N, Y]; 0 where padded."""
  number = test.index.shape[0]
  size = min(batch_size, number)
  steps = -(-number // size)

  def add(carry, logits, y, real):
    position, rows = carry
    logits = jnp.where(real[:, None], logits, 0)
    return position + 1, lax.dynamic_update_index_in_dim(
      rows, logits, position, 0
    )

  x = jax.eval_shape(normalise, test.x[:1], jax.random.key(0))
  x = jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype)
  mask = jax.ShapeDtypeStruct((size,), float_dtype(x))
  shape = jax.eval_shape(predict, view, x, mask)
  start = jnp.zeros((steps, *shape.shape), shape.dtype)  # [steps, B, Y]
  _, rows = fold_batches(
    *(add, (jnp.zeros((), jnp.int32), start)),
    *(predict, view, test, normalise, batch_size),
  )
  return rows.reshape(-1, rows.shape[-1])[:number]


def check_metrics(metrics: Metrics, num_classes: int) -> None:
  """Refuse what is no function, or returns no number."""
  rows = 3
  given = (
    jax.ShapeDtypeStruct((rows, num_classes), jnp.result_type(float)),
    jax.ShapeDtypeStruct((rows,), jnp.int32),
    jax.ShapeDtypeStruct((rows,), jnp.result_type(float)),
  )
  for name, metric in metrics.items():
    got = type(metric).__name__
    if name in TAKEN:
      raise bad_input(
        'metrics',
        got=f'{name}, the name of a number that is there already',
        expected='functions under names of their own',
        cause='a number that every evaluation has: leave it out, or give the '
        'function another name',
      )
    if callable(metric):
      out = _shape_of(metric, given)
      if _is_number(out):
        continue
      got = f'{name} that returns {user_code.describe(out)}'
    raise bad_input(
      'metrics',
      got=got,
      expected='a function (logits [N, Y], labels [N], mask [N]) -> one number '
      'for the client',
      cause='a number for each example: return (mask * values).sum() / '
      'mask.sum()',
    )


def _shape_of(metric: Metric, given: tuple) -> PyTree:
  return user_code.call(
    'metrics',
    lambda: jax.eval_shape(metric, *given),
    of=metric,
    cause='other arguments, or numpy and `if` on arrays that are traced: use '
    'jnp and jnp.where',
  )


def _is_number(out: PyTree) -> bool:
  is_array = isinstance(out, jax.ShapeDtypeStruct)
  return is_array and out.shape == () and jnp.issubdtype(out.dtype, jnp.number)

"""Metrics of the user's own: each one number a client, of all its tests.

The models are applied to these once more. What is reported is the mean over
clients for which the value is finite: NaN says that it is not defined for a
client, such as the recall of a class that it has not got.
"""

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import Array, ClientData, PyTree, Scores
from fedjax_pfl.core.user_code import NAME, call, describe, value_of
from fedjax_pfl.data.batching import of_labels, rows_in_order
from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  MAX,
  MEASURES,
  MIN,
  Measure,
  measure_of,
)
from fedjax_pfl.evaluation.metrics import TEST_BATCH, Predict

# (logits [N, Y], labels [N], mask [N]) -> one number, by name.
Metrics = Mapping[str, Callable[[Array, Array, Array], Array]]
# Numbers that a summary has already, and fields of a file with scores.
TAKEN = {'accuracy', 'mean', 'std', 'pooled', 'worst_decile', 'interval'}
TAKEN |= {'num_clients', 'num_left_out', 'lowest_client', *Scores._fields}


def metrics_of(names: tuple[str, ...], num_classes: int) -> Metrics:
  """Return the metrics of a client by name: the package's, and the user's."""
  metrics = {
    NAME.fullmatch(name)['name']: value_of('metrics', name) for name in names
  }
  if len(metrics) < len(names):
    raise bad_input(
      'metrics',
      got=names,
      expected='functions of different names: a result has them by name',
      cause='a function that is listed twice, or two files with one name',
    )
  check_metrics(metrics, num_classes)
  of_package = {one.name: one.of_client for one in MEASURES if one.of_client}
  return of_package | metrics


def measures_of(metrics: Iterable[str]) -> list[Measure]:
  """Return the user's metrics as measures; higher is better, or `f.better`."""
  return [
    measure_of(
      NAME.fullmatch(name)['name'],
      getattr(value_of('metrics', name), 'better', MAX),
    )
    for name in metrics
  ]


def chooser(name: str, metrics: Iterable[str]) -> Measure:
  """Return the measure of clients by which validation chooses."""
  of_client = [
    one for one in MEASURES if one.of_client or one.name in Scores._fields
  ]
  found = [ACCURACY, *of_client, *measures_of(metrics)]
  known = {one.name: one for one in found if one.better}
  cause = 'a metric of your own that is not among the metrics of the config'
  rule = one_of(known, 'a measure of each client', cause)
  rule.check('tune_by', name)
  return known[name]


def with_metrics(
  score_fn: Callable[..., PyTree], metrics: Metrics | None
) -> Callable[..., PyTree]:
  """Return the function of scores, which have these metrics as `own`."""
  if not metrics:
    return score_fn

  def score(predict, view, test, normalise, batch_size=TEST_BATCH):
    scores = score_fn(predict, view, test, normalise, batch_size)
    logits = all_logits(predict, view, test, normalise, batch_size)
    mask = jnp.arange(test.index.shape[0]) < test.count
    y, mask = of_labels(test.y[test.index], mask)
    mask = mask.astype(float_dtype(logits))
    values = {name: metric(logits, y, mask) for name, metric in metrics.items()}
    return scores._replace(own={**(scores.own or {}), **values})

  return score


def all_logits(
  predict: Predict, view: PyTree, test: ClientData, normalise, batch_size: int
) -> Array:
  """Return the logits of all labels of a client [N, Y]; 0 where padded."""
  number = test.index.shape[0]
  size, order = min(batch_size, number), jnp.arange(number)

  def logits_of(position):
    x, _, real = rows_in_order(test, order, position, size)
    x = normalise(x, jax.random.key(0))
    logits = predict(view, x, real.astype(float_dtype(x)))
    return jnp.where(real[:, None], logits, 0)

  rows = lax.map(logits_of, jnp.arange(-(-number // size)))  # [batches, B, Y]
  number *= rows.shape[1] // size  # labels of an example
  return rows.reshape(-1, rows.shape[-1])[:number]


def check_metrics(metrics: Metrics, num_classes: int) -> None:
  """Refuse what is no function, or returns no number."""
  number = jnp.result_type(float)
  logits = jax.ShapeDtypeStruct((3, num_classes), number)
  labels = jax.ShapeDtypeStruct((3,), jnp.int32)
  mask = jax.ShapeDtypeStruct((3,), number)
  for name, metric in metrics.items():
    got = type(metric).__name__
    if name in {*TAKEN, *(one.name for one in MEASURES)}:
      raise bad_input(
        'metrics',
        got=f'{name}, the name of a number that is there already',
        expected='functions under names of their own',
        cause='a number that every evaluation has: leave it out, or give the '
        'function another name',
      )
    one_of((MAX, MIN)).check(f'{name}.better', getattr(metric, 'better', MAX))
    if callable(metric):
      out = call(
        'metrics',
        lambda metric=metric: jax.eval_shape(metric, logits, labels, mask),
        of=metric,
        cause='other arguments, or numpy and `if` on arrays that are traced: '
        'use jnp and jnp.where',
      )
      is_array = isinstance(out, jax.ShapeDtypeStruct) and out.shape == ()
      if is_array and jnp.issubdtype(out.dtype, jnp.number):
        continue
      got = f'{name} that returns {describe(out)}'
    raise bad_input(
      'metrics',
      got=got,
      expected='a function (logits [N, Y], labels [N], mask [N]) -> one number '
      'for the client',
      cause='a number for each example: return (mask * values).sum() / '
      'mask.sum()',
    )

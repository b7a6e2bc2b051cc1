"""Metrics by name, and the user's: each one number a client, of all its tests.

The models are applied to these once more. What is reported is the mean over
clients for which the value is not NaN, which says that it is not defined for a
client, such as the recall of a class that it has not got. Outputs that are not
finite come as the worst ones (`label_metrics.or_worst`).
"""

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.example_losses import CROSS_ENTROPY
from fedjax_pfl.core.losses import float_dtype
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import (
  CLASSES,
  EVENTS,
  Array,
  ClientData,
  PyTree,
  Scores,
  Task,
)
from fedjax_pfl.core.user_code import (
  FORM,
  NAME,
  call,
  describe,
  is_code,
  value_of,
)
from fedjax_pfl.data.batching import of_labels, rows_in_order
from fedjax_pfl.evaluation import label_metrics as of
from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  MAX,
  MEASURES,
  MIN,
  Measure,
  main_of,
  measure_of,
)
from fedjax_pfl.evaluation.metrics import SCORINGS, TEST_BATCH, Predict

# (logits [N, Y], labels [N], mask [N]) -> one number, by name.
Metrics = Mapping[str, Callable[[Array, Array, Array], Array]]
ASKED = tuple(one.name for one in MEASURES if one.asked)  # by `metrics`
MANY, FEW = 100, 20  # training examples of a class (Liu et al. 2019)
# Numbers that a summary has already, and fields of a file with scores.
TAKEN = {'accuracy', 'mean', 'std', 'pooled', 'worst_decile', 'interval'}
TAKEN |= {'num_clients', 'num_left_out', 'lowest_client', *Scores._fields}


def metrics_of(names: tuple[str, ...], task: Task) -> Metrics:
  """Return the metrics of a client by name: the package's, and the user's."""
  given, names = names, [name for name in names if is_code(name)]
  metrics = {
    NAME.fullmatch(name)['name']: value_of('metrics', name) for name in names
  }
  for name in {*given} - {*names}:
    fitting = [one for one in ASKED if task.labels in of.KINDS[one]]
    what = f'a metric of labels that are {task.labels}, or {FORM}'
    one_of(fitting, what).check('metrics', name)
  if len(metrics) < len(names):
    raise bad_input(
      'metrics',
      got=names,
      expected='functions of different names: a result has them by name',
      cause='a function that is listed twice, or two files with one name',
    )
  check_metrics(metrics, task)
  of_package = {
    one.name: one.of_client
    for one in MEASURES
    if one.of_client and (one.name in given or not one.asked)
  }
  return of_package | metrics


def measures_of(metrics: Iterable[str]) -> list[Measure]:
  """Return metrics as measures; of the user's, higher is better or `better`."""
  return [
    measure_of(
      NAME.fullmatch(name)['name'],
      getattr(value_of('metrics', name), 'better', MAX),
    )
    if is_code(name)
    else measure_of(name)
    for name in metrics
  ]


def chooser(
  name: str, metrics: Iterable[str], loss: str = CROSS_ENTROPY
) -> Measure:
  """Return the measure of clients by which validation chooses.

  'accuracy' is the main number of a run with this loss: RMSE of numbers.
  """
  of_client = [
    one
    for one in MEASURES
    if (one.of_client and not one.asked) or one.name in Scores._fields
  ]
  found = [*of_client, *measures_of(metrics)]
  known = {ACCURACY.name: main_of(loss)}
  known |= {one.name: one for one in found if one.better}
  cause = 'a metric that is not among the metrics of the config'
  rule = one_of(known, 'a measure of each client', cause)
  rule.check('tune_by', name)
  return known[name]


def score_fn_of(task: Task, scoring: str = 'exact') -> Callable[..., Scores]:
  """Return the function of a client's scores: of classes, or other labels."""
  if task.labels == CLASSES:
    return SCORINGS[scoring]
  name = of.MAIN[task.labels]
  main = getattr(of, name)

  def score(predict, view, test, normalise, batch_size=TEST_BATCH):
    outputs, y, mask = outputs_of(predict, view, test, normalise, batch_size)
    losses = jnp.where(mask > 0, task.example_loss(outputs, y), 0)
    loss = losses.sum() / jnp.maximum(mask.sum(), 1)
    loss = jnp.where(jnp.isnan(loss), jnp.inf, loss)
    number = main(of.or_worst(outputs, y), y, mask)
    if name == ACCURACY.name:
      return Scores(number * test.count, test.count, loss)
    correct = number * test.count / 100
    return Scores(correct, test.count, loss, own={name: number})

  return score


def with_metrics(
  score_fn: Callable[..., PyTree], metrics: Metrics | None
) -> Callable[..., PyTree]:
  """Return the function of scores, which have these metrics as `own`."""
  if not metrics:
    return score_fn

  def score(predict, view, test, normalise, batch_size=TEST_BATCH):
    scores = score_fn(predict, view, test, normalise, batch_size)
    outputs, *rest = outputs_of(predict, view, test, normalise, batch_size)
    outputs = of.or_worst(outputs, rest[0])
    values = {name: metric(outputs, *rest) for name, metric in metrics.items()}
    return scores._replace(own={**(scores.own or {}), **values})

  return score


def outputs_of(
  predict: Predict, view: PyTree, test: ClientData, normalise, batch_size: int
) -> tuple[Array, Array, Array]:
  """Return outputs [N, Y], labels and mask [N] of all tests of a client."""
  logits = all_logits(predict, view, test, normalise, batch_size)
  mask = jnp.arange(test.index.shape[0]) < test.count
  y, mask = of_labels(test.y[test.index], mask)
  return logits, y, mask.astype(float_dtype(logits))


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


def check_metrics(metrics: Metrics, task: Task) -> None:
  """Refuse what is no function, or returns no number."""
  number = jnp.result_type(float)
  logits = jax.ShapeDtypeStruct((3, task.num_classes), number)
  labels = jax.ShapeDtypeStruct((3,), jnp.int32)
  if task.labels != CLASSES:
    width = 2 if task.labels == EVENTS else task.num_classes
    labels = jax.ShapeDtypeStruct((3, width), number)
  mask = jax.ShapeDtypeStruct((3,), number)
  for name, metric in metrics.items():
    got = type(metric).__name__
    if name in {*TAKEN, *of.KINDS, *(one.name for one in MEASURES)}:
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


# ---- over rare classes -------------------------------------------------------


def shots(train_counts: np.ndarray) -> dict[str, np.ndarray]:
  """Return which classes [Y] are many, medium and few.

    many: n_c > 100,  few: n_c < 20,  n_c of the training examples of all

  >>> {name: is_in.tolist() for name, is_in in shots([101, 20, 5]).items()}
  {'many': [True, False, False], 'medium': [False, True, False], \
'few': [False, False, True]}
  """
  counts = np.asarray(train_counts)
  many, few = counts > MANY, counts < FEW
  return {'many': many, 'medium': ~(many | few), 'few': few}


def accuracy_by_shots(train_counts: np.ndarray) -> Metrics:
  """Return metrics: a client's accuracy on its tests of each group of classes.

    a_k(g) = 100 sum_{c in g} correct_kc / sum_{c in g} count_kc

  NaN where the client has no such tests; groups without a class are left out.
  """

  def of_classes(is_in: np.ndarray):
    def accuracy(logits: Array, labels: Array, mask: Array) -> Array:
      weights = jnp.where(jnp.asarray(is_in)[labels], mask, 0)
      hits = weights * (jnp.argmax(logits, -1) == labels)
      return 100 * hits.sum() / weights.sum()

    return accuracy

  return {
    name: of_classes(is_in)
    for name, is_in in shots(train_counts).items()
    if is_in.any()
  }

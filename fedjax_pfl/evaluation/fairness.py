"""Measures of fairness: over clients, and over rare classes.

Accuracies are in percent; a client without a number is NaN, and left out.
"""

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.types import Array
from fedjax_pfl.evaluation.own_metrics import Metrics

MANY, FEW = 100, 20  # training examples of a class (Liu et al. 2019)


def negative_transfer(accuracy: np.ndarray, alone: np.ndarray) -> float:
  """Return the share of clients, in percent, that are worse than alone.

    100 |{k : a_k < b_k}| / |{k}|,  b of local_only on the same partition

  Both are of the same seeds and clients. Equal accuracies are no loss; NaN
  where no client has both.

  >>> negative_transfer(np.array([90.0, 50.0]), np.array([80.0, 70.0]))
  50.0
  """
  assert accuracy.shape == alone.shape, (accuracy.shape, alone.shape)
  is_known = ~(np.isnan(accuracy) | np.isnan(alone))
  if not is_known.any():
    return np.nan
  return 100 * float(np.mean(accuracy[is_known] < alone[is_known]))


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

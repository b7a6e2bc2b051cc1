"""Who gains and who does not: measures over clients, and over rare classes.

Accuracies are in percent; a client without a number is NaN, and left out.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

MANY, FEW = 100, 20  # training examples of a class (Liu et al. 2019)
SHOTS = 'many', 'medium', 'few'


class Lowest(NamedTuple):
  """The client with the lowest accuracy; the first of equal ones."""

  accuracy: float
  client: int


def lowest_client(accuracy: np.ndarray) -> Lowest:
  """Return the lowest of the accuracies [K].

  >>> lowest_client(np.array([80.0, np.nan, 62.5]))
  Lowest(accuracy=62.5, client=2)
  """
  if np.isnan(accuracy).all():
    return Lowest(np.nan, -1)
  client = int(np.nanargmin(accuracy))
  return Lowest(float(accuracy[client]), client)


def negative_transfer(accuracy: np.ndarray, alone: np.ndarray) -> float:
  """Return the share of clients that training alone serves better.

    |{k : a_k < b_k}| / |{k}|,  b of local_only on the same partition

  Both are [K]. Equal accuracies are no loss; NaN where no client has both.

  >>> negative_transfer(np.array([90.0, 50.0]), np.array([80.0, 70.0]))
  0.5
  """
  assert accuracy.shape == alone.shape, (accuracy.shape, alone.shape)
  is_known = ~(np.isnan(accuracy) | np.isnan(alone))
  if not is_known.any():
    return np.nan
  return float(np.mean(accuracy[is_known] < alone[is_known]))


def shots(train_counts: np.ndarray) -> dict[str, np.ndarray]:
  """Return which classes [Y] are many, medium and few.

    many: n_c > 100,  few: n_c < 20,  n_c of the training examples of all

  >>> {name: is_in.tolist() for name, is_in in shots([101, 20, 5]).items()}
  {'many': [True, False, False], 'medium': [False, True, False], \
'few': [False, False, True]}
  """
  counts = np.asarray(train_counts)
  many, few = counts > MANY, counts < FEW
  return dict(zip(SHOTS, (many, ~(many | few), few), strict=True))


def accuracy_by_shots(
  correct: np.ndarray, count: np.ndarray, train_counts: np.ndarray
) -> Mapping[str, float]:
  """Return the mean accuracy of the classes of each group.

  Args:
    correct: the tests of each class that are right, [Y], or of clients [K, Y].
    count: all tests of each class, in the same shape.
    train_counts: the training examples of each class, [Y].

  Returns:
    'many', 'medium' and 'few': the mean over classes of correct / count, NaN
    where a group has no class with tests.
  """
  correct, count = (
    np.asarray(one).reshape(-1, len(train_counts)).sum(0)
    for one in (correct, count)
  )
  accuracy = np.where(count > 0, 100 * correct / np.maximum(count, 1), np.nan)
  found = {}
  for name, is_in in shots(train_counts).items():
    own = accuracy[is_in & (count > 0)]
    found[name] = float(own.mean()) if own.size else np.nan
  return found


def class_scores(
  labels: np.ndarray, predicted: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return the right tests and all tests of each class, [Y] both."""
  right = labels[labels == predicted]
  return tuple(
    np.bincount(some, minlength=num_classes) for some in (right, labels)
  )

"""Summary statistics over clients. Pure numpy.

Accuracies are in percent, over clients that have training and test examples;
calibration errors are shares, from 0 to 1.
"""

import math
from typing import Any

import numpy as np

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.measures import over_clients

UNDEFINED = '_undefined'  # ends the name of how many clients have no number
NOT_FINITE = '_not_finite'  # of how many have an infinite one
NUM_RESAMPLES = 4000  # its ends then vary by about 2% of its width
MOST_DRAWN = 20_000  # clients, of whom draws take a second


def accuracies(scores: Scores, train_count: Any = None) -> np.ndarray:
  """Return the accuracy of every client in percent, [K]; NaN without tests.

  With `train_count` [K], NaN without training examples as well: such a client
  has no model of its own. Of numbers and events it is their main measure, NaN
  where that is not defined.
  """
  correct, count = np.asarray(scores.correct), np.asarray(scores.count)
  assert correct.shape == count.shape and correct.ndim == 1, correct.shape
  used = count > 0
  if train_count is not None:
    used = used & (np.asarray(train_count) > 0)
  return np.where(used, 100.0 * correct / np.maximum(count, 1), np.nan)


def other_measures(scores: Scores) -> dict[str, np.ndarray]:
  """Return top5 in percent, loss, ece and mce, in the shape of the scores.

  Those that are None in the scores are left out.
  """
  measures = {
    name: np.asarray(getattr(scores, name), np.float64)
    for name in ('top5', 'loss', 'ece', 'mce')
    if getattr(scores, name) is not None
  }
  if 'top5' in measures:
    measures['top5'] = measures['top5'] * (100 / np.maximum(scores.count, 1))
  return measures


def values_by_name(
  scores: Scores, train_count: Any = None
) -> dict[str, np.ndarray]:
  """Return each measure of the clients [K], 'accuracy' first.

  NaN for a client that `accuracies` leaves out, and where a metric is not
  defined. Infinite where predictions are not finite, and no number is worst.
  """
  accuracy = accuracies(scores, train_count)
  others = other_measures(scores) | (scores.own or {})
  is_used = ~np.isnan(accuracy)
  return {'accuracy': accuracy} | {
    name: np.where(is_used, values, np.nan) for name, values in others.items()
  }


def own_measures(scores: Scores, is_used: np.ndarray) -> dict[str, float]:
  """Return the means of metrics over clients for whom they are defined."""
  means = {}
  for name, values in (scores.own or {}).items():
    values = np.asarray(values, np.float64)
    values = values[is_used & ~np.isnan(values)]
    means[name] = float(values.mean()) if values.size else math.nan
    if undefined := np.sum(is_used) - values.size:
      means[name + UNDEFINED] = int(undefined)
    if infinite := np.isinf(values).sum():
      means[name + NOT_FINITE] = int(infinite)
  return means


@np.errstate(invalid='ignore')  # infinity has no deviation
def summarise(
  scores: Scores, train_count: Any = None, sign: int = 1
) -> dict[str, Any]:
  """Return the statistics of one view over clients.

    mean           unweighted over clients
    std            population standard deviation over clients (ddof 0)
    pooled         100 sum(correct) / sum(count): weighted by test examples
    worst_decile   mean of the lowest ceil(K/10) clients; NaN if a client has
                   fewer than 50 tests, of which chance makes the lowest
    lowest_client  the lowest accuracy of a client; with sign -1, as of RMSE,
                   the largest number
    interval       95% bootstrap interval of the mean over clients, [low, high]
    top5, loss     means over clients; top5 in percent
    ece, mce       means over clients of calibration errors: calibration.py
    and by name    means of metrics, yours too, over clients where defined;
                   NAME_undefined: how many others there are, if any;
                   NAME_not_finite: how many have an infinite number
    num_clients    clients in these numbers
    num_left_out   clients without test examples, or, where `train_count` is
                   given, without training examples, or for whom the measure
                   is not defined: in none of the numbers

  Args:
    scores: of all K clients, of one view.
    train_count: the training examples of each client [K], or None.
    sign: 1, or -1 if lower is better in what `scores` have for accuracies.

  Returns:
    {name: number}. All are NaN where no client is left; what is None in the
    scores is left out.

  >>> scores = pfl.Scores(correct=np.array([3, 4]), count=np.array([4, 16]))
  >>> summary = pfl.summarise(scores)
  >>> summary['mean'], summary['pooled'], summary['num_clients']
  (50.0, 35.0, 2)
  """
  accuracy, others = accuracies(scores, train_count), other_measures(scores)
  is_used = ~np.isnan(accuracy)
  used = np.sort(accuracy[is_used])
  derived = over_clients(accuracy, scores.count, sign)
  names = 'mean', 'std', 'pooled', *derived, 'interval', *others
  numbers = dict.fromkeys(names, math.nan) | {'interval': [math.nan] * 2}
  if used.size:
    correct, count = np.asarray(scores.correct), np.asarray(scores.count)
    pooled = 100.0 * correct[is_used].sum() / count[is_used].sum()
    numbers = {
      'mean': float(used.mean()),
      'std': float(used.std()),
      'pooled': float(pooled),
      **derived,
      # Of the choice of clients, not of the seed of the training.
      'interval': np.percentile(resampled_means(used), [2.5, 97.5]).tolist(),
      **{name: float(one[is_used].mean()) for name, one in others.items()},
    }
  return {
    **numbers,
    **own_measures(scores, is_used),
    'num_clients': used.size,
    'num_left_out': accuracy.size - used.size,
  }


def resampled_means(values: np.ndarray) -> np.ndarray:
  """Return the means of NUM_RESAMPLES draws of the values with replacement."""
  rng, size = np.random.default_rng(0), values.size
  if size > MOST_DRAWN:  # of so many, the mean is normal
    deviation = values.std() / math.sqrt(size)
    return rng.normal(values.mean(), deviation, NUM_RESAMPLES)
  # A million indices at once are 8 MB; all at once might be gigabytes.
  rows = max(1, 1_000_000 // size)
  means = []
  for first in range(0, NUM_RESAMPLES, rows):
    drawn = rng.integers(0, size, (min(rows, NUM_RESAMPLES - first), size))
    means.append(values[drawn].mean(axis=1))
  return np.concatenate(means)

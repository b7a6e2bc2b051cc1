"""From the scores of clients to the numbers of a table. Pure numpy.

All accuracies are in percent, over clients that have examples for training and
for testing; calibration errors are shares, from 0 to 1.
"""

import math
from typing import Any

import numpy as np

from fedjax_pfl.core.types import Scores

NUM_RESAMPLES = 4000  # the interval's ends then move by about 2% of its width


def accuracies(scores: Scores, train_count: Any = None) -> np.ndarray:
  """Return the accuracy of every client in percent, [K]; NaN without tests.

  With `train_count` [K], NaN without training examples as well: such a client
  has no model of its own to be evaluated.
  """
  correct, count = np.asarray(scores.correct), np.asarray(scores.count)
  assert correct.shape == count.shape and correct.ndim == 1, correct.shape
  used = count > 0
  if train_count is not None:
    used = used & (np.asarray(train_count) > 0)
  safe = np.maximum(count, 1)
  return np.where(used, 100.0 * correct / safe, np.nan)


def other_measures(scores: Scores) -> dict[str, np.ndarray]:
  """Return top5 in percent, loss, ece and mce of every client.

  In the shape of the scores; without those that they lack.
  """
  measures = {
    'top5': scores.top5,
    'loss': scores.loss,
    'ece': scores.ece,
    'mce': scores.mce,
  }
  measures = {
    name: np.asarray(values, np.float64)
    for name, values in measures.items()
    if values is not None
  }
  if 'top5' in measures:
    measures['top5'] *= 100 / np.maximum(scores.count, 1)
  return measures


def summarise(scores: Scores, train_count: Any = None) -> dict[str, Any]:
  """Return the summary of one view.

    mean           unweighted over clients: every client matters alike
    std            population standard deviation over clients (ddof 0)
    pooled         100 sum(correct) / sum(count): every example matters alike
    worst_decile   mean of the lowest ceil(K/10) clients
    interval       95% bootstrap interval of the mean over clients, [low, high]
    top5, loss     means over clients; top5 in percent
    ece, mce       means over clients of calibration errors: calibration.py
    num_clients    clients in these numbers
    num_left_out   clients without test examples, or, where `train_count` [K]
                   is given, without training examples: in none of them

  All numbers are NaN where no client is left; what the scores lack is left out.
  """
  accuracy = accuracies(scores, train_count)
  is_used = ~np.isnan(accuracy)
  used = np.sort(accuracy[is_used])
  counts = {'num_clients': used.size, 'num_left_out': accuracy.size - used.size}
  others = other_measures(scores)
  if not used.size:
    names = ('mean', 'std', 'pooled', 'worst_decile', *others)
    return {
      **dict.fromkeys(names, math.nan),
      'interval': [math.nan] * 2,
    } | counts
  correct = np.asarray(scores.correct)[is_used]
  count = np.asarray(scores.count)[is_used]
  return {
    'mean': float(used.mean()),
    'std': float(used.std()),
    'pooled': float(100.0 * correct.sum() / count.sum()),
    'worst_decile': float(used[: math.ceil(used.size / 10)].mean()),
    'interval': bootstrap_interval(used),
    **{name: float(one[is_used].mean()) for name, one in others.items()},
    **counts,
  }


def bootstrap_interval(values: np.ndarray, *, seed: int = 0) -> list[float]:
  """Return the 95% percentile interval of the mean, [low, high].

  It tells how the mean would move with other clients of the same kind; not
  how it moves with the seed of the training.
  """
  rng = np.random.default_rng(seed)
  # A million indices at once are 8 MB; all at once might be gigabytes.
  rows = max(1, 1_000_000 // values.size)
  means = []
  for first in range(0, NUM_RESAMPLES, rows):
    size = (min(rows, NUM_RESAMPLES - first), values.size)
    means.append(values[rng.integers(0, values.size, size)].mean(axis=1))
  low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
  return [float(low), float(high)]

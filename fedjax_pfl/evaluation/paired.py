"""The difference of two settings, paired over seeds and clients. Pure numpy."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import NUM_RESAMPLES


class Difference(NamedTuple):
  """A mean difference with its 95% bootstrap interval."""

  mean: float
  interval: tuple[float, float]

  @property
  def is_noise(self) -> bool:
    """Return whether the interval contains 0, or is unknown."""
    low, high = self.interval
    return not (low > 0 or high < 0)


def paired_difference(
  ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], *, seed: int = 0
) -> Difference:
  """Return the mean over seeds s of the mean over clients of a_sk - b_sk.

  The bootstrap draws S of the S seeds, and of each as many clients as it has:
  the interval covers the choice of both. Of one seed it covers the clients
  alone. It is of this pair: the best of many settings is a little lucky.

  Args:
    ours: for every seed a_s [K], by client; NaN for one without examples.
    theirs: b_s [K], of the same seeds and clients.
    seed: of the bootstrap.

  >>> ours, theirs = [np.array([80.0, 70.0])], [np.array([75.0, 65.0])]
  >>> one = paired_difference(ours, theirs)
  >>> one.mean, one.interval, one.is_noise
  (5.0, (5.0, 5.0), False)
  """
  assert len(ours) == len(theirs) > 0, (len(ours), len(theirs))
  differences = [a - b for a, b in zip(ours, theirs, strict=True)]
  differences = [one[~np.isnan(one)] for one in differences]
  if not all(one.size for one in differences):
    return Difference(math.nan, (math.nan, math.nan))
  rng = np.random.default_rng(seed)
  num_seeds = len(differences)
  drawn = rng.integers(0, num_seeds, (NUM_RESAMPLES, num_seeds))
  means = np.empty(drawn.shape)
  for place, values in enumerate(differences):
    times = int((drawn == place).sum())
    clients = rng.integers(0, values.size, (times, values.size))
    means[drawn == place] = values[clients].mean(axis=1)
  low, high = np.percentile(means.mean(axis=1), [2.5, 97.5])
  mean = float(np.mean([one.mean() for one in differences]))
  return Difference(mean, (float(low), float(high)))

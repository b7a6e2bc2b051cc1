"""Intervals that hold together, of many paired differences. Pure numpy.

Of methods m on the clients k of seeds s, with differences d_msk of accuracies:

  d_m = mean over s of  mean over k of  d_msk

The bootstrap draws S of the S seeds, and of each drawn seed as many clients as
it has, the same for all m: d_m* with standard deviation sigma_m. The intervals

  d_m +- q sigma_m,  q: 95 % quantile of  max over m of |d_m* - d_m| / sigma_m

would contain all true d_m together in 95 of 100 repetitions, however many m
there are; an interval for each alone would miss one in twenty of them.

That is for many seeds. With few, the noise of the clients is counted twice,
while drawing S of S seeds shrinks their variance by (S - 1) / S, and no draw is
further out than the seeds themselves. With S = 3 the intervals are wide enough
where clients are most of the noise: in simulations that of one comparison holds
99 times in 100. Where seeds are, they have a third of the width that Student's
t asks for; that of one comparison holds 75 times, and many together fewer.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import NUM_RESAMPLES

LEVEL = 0.95
NOTHING = 1e-9  # points: a smaller sigma is rounding


class Bands(NamedTuple):
  """Mean differences [M] with simultaneous intervals."""

  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray


def simultaneous_bands(differences: np.ndarray, *, seed: int = 0) -> Bands:
  """Return the mean differences of [M, S, K] and their intervals.

  A client with NaN, one without test examples, is left out of its seed.

  >>> bands = simultaneous_bands(after - baseline)  # [M, S, K]
  >>> is_above = bands.low > 0
  """
  number, num_seeds, _ = differences.shape
  rng = np.random.default_rng(seed)
  drawn = rng.integers(0, num_seeds, (NUM_RESAMPLES, num_seeds))
  resampled = np.empty((number, *drawn.shape))  # [M, R, S]
  means = np.empty((number, num_seeds))
  for place in range(num_seeds):
    values = differences[:, place]
    values = values[:, ~np.isnan(values).any(0)]
    is_drawn, size = drawn == place, values.shape[1]
    assert size, f'no client of seed {place} has tests'
    shares = np.full(size, 1 / size)
    times = rng.multinomial(size, shares, int(is_drawn.sum()))
    resampled[:, is_drawn] = values @ times.T / size
    means[:, place] = values.mean(1)
  mean = means.mean(1)
  totals = resampled.mean(2)  # [M, R]
  sigma = totals.std(1)
  sigma = np.where(sigma > NOTHING, sigma, 0.0)
  scale = np.where(sigma > 0, sigma, np.inf)
  furthest = (np.abs(totals - mean[:, None]) / scale[:, None]).max(0)
  reach = np.quantile(furthest, LEVEL) * sigma
  return Bands(mean, mean - reach, mean + reach)

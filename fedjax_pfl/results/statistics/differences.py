"""Differences of methods, and which of many hold. Pure numpy.

With d_s, the difference of two methods with seed s, a mean over clients on the
same partition, cohorts and initial model, of S seeds:

  t  = mean(d) / (std(d, ddof=1) / sqrt(S))       Student, S - 1 degrees
  p  = 2 P(T < -|t|)                              unadjusted, two-sided

Of a leaderboard, whose tests may be few, the standard error below t is not less
than that of the clients (`error_of_clients`).

Holm, over the M comparisons of one table or leaderboard, p_(1) <= p_(2) <= ..:

  adjusted p_(i) = max over j <= i of min(1, (M - j + 1) p_(j))

A comparison holds if its adjusted p is below 0.05: then one false verdict or
more is in at most one table of twenty, however large M is.

Like with like: both methods are read in views of the same kind. Both are
personalised or neither is, on training examples, with the models of the last
round. Where a paper compares unlike views, both differences are given.

`paired_difference` is of two settings alone, also of one seed: a sweep's lead.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import NUM_RESAMPLES, resampled_means

LEVEL = 0.05  # of the adjusted p
ENDS = [2.5, 97.5]  # percentiles
NOTHING = 1e-9  # points: a smaller deviation is rounding
MIN_SEEDS = 3  # for the interval of a figure
NORMAL = 1.96


class Difference(NamedTuple):
  """A mean difference in points, with the ends of its 95 % interval."""

  mean: float
  low: float = math.nan  # NaN: nothing gives an interval
  high: float = math.nan
  p: float = math.nan  # unadjusted; of `over_seeds` alone

  @property
  def has_interval(self) -> bool:
    return not math.isnan(self.low)

  @property
  def sign(self) -> int:
    """Return 1 or -1 if all of the interval is on one side of 0, else 0."""
    return int(self.low > 0) - int(self.high < 0)


class Score(NamedTuple):
  """The number of one method with one seed, in percent."""

  sign: int  # 1 or -1: with which it is in the difference
  mean: float
  std: float | None = None  # over clients; None: one number of the server
  size: int = 0  # clients or, without a std, test images; 0: unknown
  clients: np.ndarray | None = None  # [K]; NaN without an accuracy
  data: str = ''  # fingerprint of the clients: equal ones share them


def paired_difference(
  ours: Sequence[np.ndarray],
  theirs: Sequence[np.ndarray],
  *,
  same_clients: bool = False,
) -> Difference:
  """Return the mean over seeds s of the mean over clients of a_sk - b_sk.

  The interval is the wider one, at each end, of two. The bootstrap draws S of
  the S seeds, and of each as many clients as it has; it cannot leave the range
  of the seeds. With `same_clients` it draws K of the clients' means over seeds,
  once, and S of the seeds' means, and adds their deviations. Student's t is
  that of the S means; of two seeds it decides hardly anything. Of one seed the
  interval covers the clients alone. It is of this pair: the best of many
  settings is a little lucky.

  Args:
    ours: for every seed a_s [K], by client; NaN for one without examples.
    theirs: b_s [K], of the same seeds and clients.
    same_clients: whether client k is the same one with every seed.

  >>> one = paired_difference([np.array([80.0, 70])], [np.array([75.0, 65])])
  >>> one.mean, one.low, one.high, one.sign
  (5.0, 5.0, 5.0, 1)
  """
  gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
  differences = [gap[~np.isnan(gap)] for gap in gaps]
  if not all(gap.size for gap in differences):
    return Difference(math.nan)
  rng, num_seeds = np.random.default_rng(0), len(differences)
  drawn = rng.integers(0, num_seeds, (NUM_RESAMPLES, num_seeds))
  own = np.array([gap.mean() for gap in differences])
  mean, half = float(own.mean()), 0.0
  if num_seeds > 1:
    half = _quantile(num_seeds) * _error(own)
  if same_clients:
    shared = np.mean(gaps, axis=0)  # [K]
    totals = resampled_means(shared[~np.isnan(shared)], seed=rng)
    totals += own[drawn].mean(axis=1) - mean
  else:
    means = np.empty(drawn.shape)
    for place, gap in enumerate(differences):
      is_drawn = drawn == place
      number = int(is_drawn.sum())
      means[is_drawn] = resampled_means(gap, seed=rng, number=number)
    totals = means.mean(axis=1)
  low, high = np.percentile(totals, ENDS).tolist()
  return Difference(mean, min(low, mean - half), max(high, mean + half))


def over_seeds(values: Sequence[float], floor: float = 0.0) -> Difference:
  """Return the mean of one number a seed: its 95 % interval and p by Student.

  Seeds are the unit: clients of one seed share a model and a partition. Of one
  seed there is neither an interval nor a p. The standard error is taken to be
  `floor` at least; see `error_of_clients`.

  >>> one = over_seeds([5.0, 6.0, 7.0])
  >>> round(one.low, 2), round(one.high, 2), round(one.p, 4)
  (3.52, 8.48, 0.0091)
  """
  number, mean = len(values), float(np.mean(values))
  if number < 2:
    return Difference(mean)
  from scipy.special import stdtr  # distribution of Student's t

  error = max(_error(values), floor)
  half = _quantile(number) * error
  if error < NOTHING:
    p = float(abs(mean) < NOTHING)
  else:
    p = 2 * float(stdtr(number - 1, -abs(mean) / error))
  return Difference(mean, mean - half, mean + half, p)


def over_paired_clients(gaps: np.ndarray) -> Difference:
  """Return `over_seeds` of means over clients [S, K], with their error."""
  return over_seeds(np.nanmean(gaps, 1), error_of_clients(gaps))


def within(values: Sequence[float], margin: float, floor: float = 0.0) -> float:
  """Return the p of two one-sided tests that a mean is within the margin.

    p = P(T < -(margin - |mean(d)|) / error)       Student, S - 1 degrees

  Of one seed 1.

  >>> round(within([0.1, 0.0, -0.1], 1.0), 4)
  0.0017
  """
  if len(values) < 2:
    return 1.0
  from scipy.special import stdtr

  room = margin - abs(float(np.mean(values)))
  error = max(_error(values), floor)
  if error < NOTHING:
    return float(room <= 0)
  return float(stdtr(len(values) - 1, -room / error))


def error_of_clients(gaps: np.ndarray) -> float:
  """Return the standard error that the clients alone give a mean, of [S, K].

    sqrt(sum over s of var_k(gaps_sk) / K) / S

  Seeds can only add to it. Three of them agree by chance more often than
  Student's t allows for where the tests are few, because shares of few images
  are often equal. A client with NaN, one without tests, is left out.

  >>> error_of_clients(np.array([[1.0, 3.0], [2.0, 4.0]]))
  0.7071067811865476
  """
  number = np.isfinite(gaps).sum(1)
  squares = np.nansum((gaps - np.nanmean(gaps, 1, keepdims=True)) ** 2, 1)
  variances = squares / np.maximum(number - 1, 1) / number
  return float(np.sqrt(variances.sum()) / len(gaps))


def holm(differences: Sequence[Difference | None]) -> list[float]:
  """Return Holm's adjusted p of every comparison of a family.

  What was not measured, or has one seed, counts in M with p = 1.
  """
  ps = [math.nan if one is None else one.p for one in differences]
  ps = np.nan_to_num(ps, nan=1.0)
  order = np.argsort(ps, kind='stable')
  steps = ps[order] * np.arange(ps.size, 0, -1)
  adjusted = np.empty(ps.size)
  adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
  return adjusted.tolist()


def differences_by_client(scores: Sequence[Score]) -> list[np.ndarray]:
  """Return the signed sum of every client, an array for each partition.

  Clients without an accuracy in one of the methods are left out.
  """
  groups: dict[str, np.ndarray] = {}
  for one in scores:
    groups[one.data] = groups.get(one.data, 0.0) + one.sign * one.clients
  return [group[np.isfinite(group)] for group in groups.values()]


def _quantile(number: int) -> float:
  """Return how many standard errors half of the 95 % interval is wide."""
  from scipy.special import stdtrit  # quantile of Student's t

  return float(stdtrit(number - 1, 0.975))


def _error(values: Sequence[float]) -> float:
  return float(np.std(values, ddof=1)) / math.sqrt(len(values))

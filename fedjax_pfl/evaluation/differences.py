"""Differences of methods or settings with their 95 % intervals. Pure numpy.

Three questions, one record as the answer:

  paired_difference         two settings on the same seeds and clients
  simultaneous_differences  many of them, with intervals that hold together
  stated_difference         a signed sum of numbers, of some of which the score
                            of each client is gone

The first two draw seeds and clients again (bootstrap). A bootstrap of few seeds
is too narrow, so that Student's interval over seeds bounds the first from
within, and is that of the third from three seeds on.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import NUM_RESAMPLES, resampled_means

LEVEL = 0.95
ENDS = [2.5, 97.5]  # percentiles
NOTHING = 1e-9  # points: a smaller deviation is rounding
MIN_SEEDS = 3  # for an interval over seeds
NORMAL = 1.96
# How an interval was made; see `stated_difference`.
OVER_SEEDS, PAIRED, UNPAIRED = 'seeds', 'paired', 'unpaired'
OVER_IMAGES = 'images'


class Difference(NamedTuple):
  """A mean difference in points, with the ends of its 95 % interval."""

  mean: float
  low: float = math.nan  # NaN: nothing gives an interval
  high: float = math.nan
  kind: str = ''  # one of the words above, of `stated_difference`
  p: float = math.nan  # two-sided, of Student's t over seeds; NaN of others

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
  mean, half = float(own.mean()), _student(own) if num_seeds > 1 else 0.0
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


def simultaneous_differences(differences: np.ndarray) -> list[Difference]:
  """Return the mean differences of [M, S, K]; their intervals hold together.

  Of methods m on the clients k of seeds s:

    d_m = mean over s of  mean over k of  d_msk

  The bootstrap draws S of the S seeds, and of each drawn seed as many clients
  as it has, the same for all m: d_m* with standard deviation sigma_m. With q,
  the 95 % quantile of max over m of |d_m* - d_m| / sigma_m, the intervals

    d_m +- q sigma_m

  would contain all true d_m together in 95 of 100 repetitions, however many m
  there are; an interval for each alone would miss one in twenty of them.

  That is for many seeds. With S = 3 the intervals are wide enough where clients
  are most of the noise: in simulations that of one comparison holds 99 times in
  100. Where seeds are, they have a third of the width of Student's t; that of
  one comparison holds 75 times, and many together fewer.

  A client with NaN, one without test examples, is left out of its seed.
  """
  number, num_seeds, _ = differences.shape
  rng = np.random.default_rng(0)
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
  mean, totals = means.mean(1), resampled.mean(2)  # [M], [M, R]
  sigma = totals.std(1)
  sigma = np.where(sigma > NOTHING, sigma, 0.0)
  scale = np.where(sigma > 0, sigma, np.inf)
  furthest = (np.abs(totals - mean[:, None]) / scale[:, None]).max(0)
  reach = np.quantile(furthest, LEVEL) * sigma
  rows = np.stack([mean, mean - reach, mean + reach], 1)
  return [Difference(*row) for row in rows.tolist()]


def stated_difference(seeds: Sequence[Sequence[Score]]) -> Difference:
  """Return the mean over seeds of sum_i sign_i mean_i.

  Of three seeds or more the interval is Student's over the seeds. Of fewer it
  is over clients and leaves the spread over seeds out (with two seeds Student's
  t is 12.7 standard errors wide and decides nothing):

    paired    methods with the same clients are subtracted client by client, and
              the clients are drawn again (percentile bootstrap); clients of
              other partitions are drawn on their own
    unpaired  without the score of each client: 1.96 standard errors from the
              deviations over clients, as if each method had clients of its own;
              wider than the paired one where methods fail on the same clients
    images    of one number on a whole test set: 1.96 standard errors of shares
              of its images, as if each method had images of its own

  >>> scores = [Score(1, 84.9, 7.0, 100), Score(-1, 79.8, 8.0, 100)]
  >>> stated_difference([scores]).kind
  'unpaired'
  """
  assert seeds and all(seeds)
  sums = [sum(one.sign * one.mean for one in scores) for scores in seeds]
  mean, number = float(np.mean(sums)), len(seeds)
  every = [one for scores in seeds for one in scores]
  if number >= MIN_SEEDS:
    half = _student(sums)
    return Difference(mean, mean - half, mean + half, OVER_SEEDS, _p(sums))
  if all(one.clients is not None for one in every):
    groups = differences_by_client(every)
    if any(group.size < 2 for group in groups):
      return Difference(mean)
    # Seeds of one partition have the same clients, which are drawn together;
    # those of other partitions independently.
    drawn = sum(
      resampled_means(group, seed=place) for place, group in enumerate(groups)
    )
    ends = np.percentile(drawn / number, ENDS).tolist()
    return Difference(mean, *ends, PAIRED)
  if all(one.size for one in every):
    half = NORMAL * math.sqrt(sum(map(_variance, every))) / number
    kind = OVER_IMAGES if every[0].std is None else UNPAIRED
    return Difference(mean, mean - half, mean + half, kind)
  return Difference(mean)


def differences_by_client(scores: Sequence[Score]) -> list[np.ndarray]:
  """Return the signed sum of every client, an array for each partition.

  Clients without an accuracy in one of the methods are left out.
  """
  groups: dict[str, np.ndarray] = {}
  for one in scores:
    groups[one.data] = groups.get(one.data, 0.0) + one.sign * one.clients
  return [group[np.isfinite(group)] for group in groups.values()]


def _student(values: Sequence[float]) -> float:
  """Return half of Student's 95 % interval for the mean of these."""
  from scipy.special import stdtrit  # quantile of Student's t

  error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
  return float(stdtrit(len(values) - 1, 0.975)) * error


def _p(values: Sequence[float]) -> float:
  """Return the two-sided p of Student's t for the mean of these being 0."""
  from scipy.special import stdtr

  error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
  t = abs(float(np.mean(values))) / max(error, NOTHING)
  return float(2 * stdtr(len(values) - 1, -t))


def holm(values: Sequence[float]) -> list[float]:
  """Return the p values adjusted for their number M (Holm 1979).

    p~_(i) = max over j <= i of  min(1, (M - j + 1) p_(j)),  p_(1) <= p_(2) ..

  If no difference were there, the least would be below 0.05 in at most 5 of 100
  repetitions, however the comparisons depend on each other. NaN stays, and does
  not count.

  >>> holm([0.01, 0.04, 0.03])
  [0.03, 0.06, 0.06]
  """
  own = np.asarray(values, float)
  order = np.argsort(own)[: int(np.isfinite(own).sum())]
  steps = np.minimum(1, own[order] * np.arange(len(order), 0, -1))
  adjusted = np.full(own.shape, math.nan)
  adjusted[order] = np.maximum.accumulate(steps)
  return adjusted.tolist()


def _variance(one: Score) -> float:
  """Return the squared standard error of a mean, or of a share of images."""
  if one.std is None:
    return one.mean * (100 - one.mean) / one.size
  return one.std**2 / one.size

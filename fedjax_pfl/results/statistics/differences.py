"""One rule of comparison: a difference, its interval, and whether it holds.

With d_s, the difference of two methods with seed s, a mean over clients on the
same partition, cohorts and initial model, of S seeds:

  e  = max(std(d, ddof=1) / sqrt(S), error of the clients)
  t  = mean(d) / e                                Student, S - 1 degrees
  p  = 2 P(T < -|t|)                              unadjusted, two-sided

Holm, over the M comparisons that are shown together, p_(1) <= p_(2) <= ..:

  adjusted p_(i) = max over j <= i of min(1, (M - j + 1) p_(j))

A comparison holds if its adjusted p is below 0.05: then one false verdict or
more is in at most one table of twenty, however large M is. The best of several
was chosen by the same numbers: its M is that of all pairs. What does not hold
is within one point if Holm's p of two one-sided tests is below 0.05.

Sweeps, comparisons, pages and claims have this rule and no other. Of one seed
there is neither an interval nor a verdict.

Like with like: both methods are read in views of the same kind. Both are
personalised or neither is, on training examples, with the models of the last
round. Where a paper compares unlike views, both differences are given.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedjax_pfl.evaluation.choices import mean_of_clients
from fedjax_pfl.evaluation.measures import ACCURACY, Measure

LEVEL = 0.05  # of the adjusted p
NOTHING = 1e-9  # points: a smaller deviation is rounding
MIN_SEEDS = 3  # for the interval of a figure
POINT = 1.0  # of accuracy: closer means are equivalent
ABOVE, BELOW, OPEN = 'above', 'below', 'not distinguishable'
WITHIN = 'within one point'

# A measure of the clients [K] of every seed; methods are paired where both
# have the key.
BySeed = Mapping[Hashable, np.ndarray]
Pair = tuple[str, str]


class Difference(NamedTuple):
  """A mean difference in points, with the ends of its 95 % interval."""

  mean: float
  low: float = math.nan  # NaN: of one seed
  high: float = math.nan
  p: float = math.nan  # unadjusted

  @property
  def has_interval(self) -> bool:
    return not math.isnan(self.low)

  @property
  def sign(self) -> int:
    """Return 1 or -1 if all of the interval is on one side of 0, else 0."""
    return int(self.low > 0) - int(self.high < 0)


class Verdict(NamedTuple):
  """One method minus another, among all that is shown with it."""

  gap: Difference
  p: float  # Holm's
  p_within: float  # Holm's, of being within one point
  sign: int = 1  # -1 where lower is better

  @property
  def is_ahead(self) -> bool:
    """Return whether the first is the better one, and it holds."""
    return self.p < LEVEL and self.sign * self.gap.mean > 0

  @property
  def word(self) -> str:
    if self.p < LEVEL:
      return ABOVE if self.gap.mean > 0 else BELOW
    return WITHIN if self.p_within < LEVEL else OPEN


def compare(
  methods: Mapping[str, BySeed],
  pairs: Sequence[Pair],
  same_clients: bool = False,
  measure: Measure = ACCURACY,
) -> dict[Pair, Verdict]:
  """Return {pair: the first minus the second}, clients and seeds paired.

  The pairs are one family of Holm's. Those that share no two seeds, or have a
  mean that is infinite, count in it and are not in the answer. With
  `same_clients` client k is the same one with every seed. Only percentages may
  be within one point.
  """
  gaps, closer, margin = {}, [], POINT if measure.unit == '%' else 0.0
  for pair in pairs:
    ours, theirs = (methods.get(name, {}) for name in pair)
    with np.errstate(invalid='ignore'):
      clients = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    means = [*map(mean_of_clients, clients)]
    if len(clients) > 1 and np.isfinite(means).all():
      floor = error_of_clients(clients, same_clients)
      gaps[pair] = over_seeds(means, floor)
      closer.append(within(means, margin, floor))
  lost = [1.0] * (len(pairs) - len(gaps))
  ps = holm([gap.p for gap in gaps.values()] + lost)
  ps_within = holm(closer + lost)
  return {
    pair: Verdict(gap, p, p_within, measure.sign)
    for (pair, gap), p, p_within in zip(
      gaps.items(), ps, ps_within, strict=False
    )
  }


def behind_best(
  methods: Mapping[str, BySeed],
  best: str,
  same_clients: bool = False,
  measure: Measure = ACCURACY,
) -> dict[str, Verdict]:
  """Return the best minus each of the others; the family is all pairs."""
  others = [name for name in methods if name != best]
  pairs = [(best, name) for name in others] + [*combinations(others, 2)]
  verdicts = compare(methods, pairs, same_clients, measure)
  return {pair[1]: verdicts[pair] for pair in verdicts if pair[0] == best}


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
  from scipy.special import stdtr, stdtrit  # Student's t and its quantiles

  error = max(_error(values), floor)
  half = float(stdtrit(number - 1, 0.975)) * error
  if error < NOTHING:
    p = float(abs(mean) < NOTHING)
  else:
    p = 2 * float(stdtr(number - 1, -abs(mean) / error))
  return Difference(mean, mean - half, mean + half, p)


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


def error_of_clients(
  gaps: Sequence[np.ndarray], same_clients: bool = False
) -> float:
  """Return the standard error that the clients alone give a mean over seeds.

    sqrt(sum over s of var_k(gaps_sk) / K_s) / S
    sqrt(var_k(mean over s of gaps_sk) / K)        the same clients every time

  Seeds can only add to it. Three of them agree by chance more often than
  Student's t allows for where the tests are few, because shares of few images
  are often equal. A client with NaN, one without tests, is left out.

  >>> error_of_clients([np.array([1.0, 3.0]), np.array([2.0, 4.0])])
  0.7071067811865476
  >>> error_of_clients([np.array([1.0, 3.0]), np.array([2.0, 4.0])], True)
  1.0
  """
  if same_clients:
    return math.sqrt(variance_of_mean(np.mean(gaps, axis=0)))
  return math.sqrt(sum(map(variance_of_mean, gaps))) / len(gaps)


def variance_of_mean(values: np.ndarray) -> float:
  """Return the variance that the choice of the clients [K] gives their mean."""
  used = values[np.isfinite(values)]
  return float(np.var(used, ddof=1)) / used.size if used.size > 1 else 0.0


def holm(ps: Sequence[float]) -> list[float]:
  """Return Holm's adjusted p of every comparison of a family.

  NaN, of one seed or of what was not measured, counts in M as p = 1.
  """
  ps = np.nan_to_num(ps, nan=1.0)
  order = np.argsort(ps, kind='stable')
  steps = ps[order] * np.arange(ps.size, 0, -1)
  adjusted = np.empty(ps.size)
  adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
  return adjusted.tolist()


def _error(values: Sequence[float]) -> float:
  return float(np.std(values, ddof=1)) / math.sqrt(len(values))

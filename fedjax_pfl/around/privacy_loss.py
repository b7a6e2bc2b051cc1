"""The distribution of the privacy loss of a round, and of many.

A round adds normal noise of deviation 1 to a sum that the upload of a client
moves by at most mu, and the client takes part with probability q. Let P be
N(mu, 1) and Q be N(0, 1). The privacy profile of two distributions is
H(epsilon) = sup_S P(S) - e^epsilon Q(S), and each kind of `Pair` has one:

  REMOVE   (1 - q) Q + q P and Q: the client is in the first run only
  ADD      Q and (1 - q) Q + q P: it is in the second run only
  REPLACE  at each epsilon >= 0 that of REMOVE, below 0 that of ADD
  KNOWN    q times that of P and Q, plus 1 - q times that of Q and Q: the same
           draws are published with the sum

A pair dominates rounds if for all neighbours their profile is nowhere above
that of the pair, at negative epsilon either. Then it dominates after any past,
and the composition of the pairs, as if independent, dominates all rounds (Zhu,
Dong and Wang 2022, Optimal accounting of differential privacy via
characteristic function). The bound is the larger of REMOVE and ADD, compared
after composition (Lebeda, Regehr, Kamath and Steinke 2024, Avoiding pitfalls
for privacy accounting of subsampled mechanisms under composition).

Why these pairs dominate:
- REMOVE and ADD, for one client more or less in Poisson cohorts. Whom else a
  round draws does not depend on this client: given that, and what others keep
  between rounds, the sum is N(s, 1) without it, and (1 - q) N(s, 1) +
  q E N(s + v, 1) with it, |v| <= mu. The mean is over what the client itself
  keeps; profiles are jointly convex.
- REPLACE, for the other data of one client. The runs publish (1 - q) R + q P1
  and (1 - q) R + q P2, with R the mixture of rounds without that client. P1, P2
  and R can be coupled so that the sums of any two differ by at most two clips:
  in R, without replacement, some other client has its place. By advanced joint
  convexity (Balle, Barthe and Gaboardi 2018, theorem 2) their profile at
  epsilon >= 0 is at most q H(log(1 + (e^epsilon - 1) / q)), which is that of
  REMOVE with mu of two clips. The relation is symmetric, and exchanged runs
  have 1 - e^epsilon + e^epsilon H(-epsilon): that of ADD below 0.
- KNOWN, for the other data of one client. Given all draws, P and Q compose as
  often as the client is drawn, whatever clients keep; profiles are jointly
  convex in the draws.

Discretisation rounds up: between the points of a grid the profile is that of
their chord (Doroshenko et al. 2022, Connect the dots).
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

REMOVE, ADD, REPLACE, KNOWN = 'remove', 'add', 'replace', 'known'
# In the range of a loss. Eight times as many change epsilon by 1e-6 to 3e-5 of
# it, and by 1e-3 in 1000 rounds of 1 of 1000 clients.
NUM_POINTS = 2**14
TAIL = 9.0  # deviations, beyond which a loss is infinite: probability 1e-19


class Pair(NamedTuple):
  """Two distributions of what a round publishes; mu: clips by noise."""

  kind: str
  mu: float
  rate: float = 1.0  # q

  def width(self) -> float:
    """Return the range of its loss."""
    low, high = _range(self)
    return high - low


def profile(pair: Pair, epsilon: np.ndarray) -> np.ndarray:
  """Return the delta of each epsilon."""
  kind, mu, rate = pair
  if kind == KNOWN:
    alike = -np.expm1(np.minimum(epsilon, 0))
    return rate * _gaussian(mu, epsilon) + (1 - rate) * alike
  if kind == REMOVE:
    return _removed(mu, rate, epsilon)
  added = _added(mu, rate, epsilon)
  if kind == ADD:
    return added
  return np.where(epsilon < 0, added, _removed(mu, rate, epsilon))


def _gaussian(mu, epsilon):
  """Return the profile of P and Q; Balle and Wang 2018, theorem 8."""
  from scipy.special import log_ndtr  # 0.5 s, which other runs do not need

  upper = log_ndtr(mu / 2 - epsilon / mu)
  return np.exp(upper) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def _removed(mu, rate, epsilon):
  """Return q H(P, Q) at log(1 + (e^epsilon - 1) / q)."""
  delta = rate * _gaussian(mu, _inner(rate, epsilon))
  return np.maximum(delta, -np.expm1(np.minimum(epsilon, 0)))


def _added(mu, rate, epsilon):
  """Return 1 - e^epsilon + e^epsilon H(-epsilon), H that of REMOVE.

  In logarithms, because e^epsilon may be too large for a number.
  """
  from scipy.special import log_ndtr

  inner = _inner(rate, -epsilon) / mu
  with np.errstate(divide='ignore'):
    out = -np.expm1(np.minimum(epsilon + np.log1p(-rate), 0))
  within = epsilon + math.log(rate) + log_ndtr(inner - mu / 2)
  delta = out * np.exp(log_ndtr(inner + mu / 2)) - np.exp(within)
  return np.maximum(delta, -np.expm1(np.minimum(epsilon, 0)))


def _inner(rate, epsilon):
  """Return log(1 + (e^epsilon - 1) / q), the loss of a client that is drawn."""
  with np.errstate(divide='ignore'):  # of rate 1, and of losses below the least
    out = np.minimum(np.log1p(-rate) - epsilon, 0)
    return epsilon + np.log(-np.expm1(out)) - math.log(rate)


def _range(pair):
  """Return the least and the largest loss, but for tails."""
  kind, mu, rate = pair
  ends = np.array([-1, 1]) * (TAIL * mu + mu**2 / 2)
  if kind == KNOWN:
    return ends
  with np.errstate(divide='ignore'):
    low, high = np.logaddexp(np.log1p(-rate), math.log(rate) + ends)
  ranges = {REMOVE: (low, high), ADD: (-high, -low), REPLACE: (-high, high)}
  return ranges[kind]


@lru_cache(64)
def loss_of(pair: Pair, interval: float):
  """Return the distribution of the loss of one round, of dp-accounting."""
  from dp_accounting.pld import pld_pmf

  low, high = _range(pair)
  first, last = math.floor(low / interval), math.ceil(high / interval)
  deltas = profile(pair, np.arange(first, last + 1) * interval)
  return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
    interval, first, last, np.clip(deltas, 0, 1)
  ).to_dense_pmf()


def epsilon_of_rounds(
  delta: float, rounds: Iterable[tuple[Pair, int]]
) -> float:
  """Return the epsilon of so many rounds of each pair; one round or more."""
  total, rounds = None, [_merged(*own) for own in rounds if own[1]]
  sampled = [pair.width() for pair, _ in rounds if pair.rate < 1]
  # Beside a wide Gaussian part, no finer grid is needed.
  gaussian = [pair.width() for pair, _ in rounds if pair.rate == 1]
  interval = max([min(sampled, default=0), *gaussian])
  for pair, number in rounds:
    loss = loss_of(pair, interval / NUM_POINTS).self_compose(number)
    total = total.compose(loss, 1e-15) if total else loss
  with np.errstate(over='ignore'):  # of an epsilon near 700, or above
    return total.get_epsilon_for_delta(delta)


def _merged(pair, number):
  """Return rounds of rate 1 as one Gaussian mechanism, others as they are."""
  if pair.rate < 1:
    return pair, number
  return pair._replace(mu=pair.mu * math.sqrt(number)), 1

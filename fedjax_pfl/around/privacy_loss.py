"""The distribution of the privacy loss of a sampled round, by dp-accounting.

A round adds normal noise of deviation 1 to a sum that the upload of a client
moves by at most mu, and the client takes part with probability q. Let P be
N(mu, 1) and Q be N(0, 1), and the profile of two distributions
H(epsilon) = sup_S P(S) - e^epsilon Q(S). A pair dominates rounds if for all
neighbours their profile is nowhere above that of the pair; then the composition
of pairs, as if independent, dominates all rounds, whatever the past (Zhu, Dong
and Wang 2022, Optimal accounting of differential privacy via characteristic
function). The pairs, by what neighbours differ in:

  JOINS    one client more or less in a Poisson cohort: (1 - q) Q + q P and Q,
           and the reverse, composed apart (Lebeda, Regehr, Kamath and Steinke
           2024). Whom else a round draws does not depend on this client: given
           that, and what others keep, the sum is N(s, 1) without it, and
           (1 - q) N(s, 1) + q E N(s + v, 1) with it, |v| <= mu.
  KNOWN    the data of one client, and the draws are published: q times P and Q,
           1 - q times Q and Q. Given all draws, P and Q compose as often as the
           client is drawn, whatever clients keep.
  REPLACE  the data of one client: at epsilon >= 0 the first profile of JOINS,
           below 0 that of its reverse, with mu of two clips. The runs publish
           (1 - q) R + q P1 and (1 - q) R + q P2, with R the mixture of rounds
           without that client. P1, P2 and R can be coupled so that the sums of
           any two differ by at most two clips: in R, without replacement, some
           other client has its place. By advanced joint convexity (Balle,
           Barthe and Gaboardi 2018, theorem 2) their profile at epsilon >= 0 is
           at most q H(log(1 + (e^epsilon - 1) / q)). The relation is symmetric,
           and exchanged runs have 1 - e^epsilon + e^epsilon H(-epsilon).

The grid of a loss rounds up (Doroshenko et al. 2022, Connect the dots).
"""

import math
from functools import lru_cache

import numpy as np

JOINS, KNOWN, REPLACE = 'joins', 'known', 'replace'


def width(mu: float, rate: float) -> float:
  """Return the range of the loss, but for tails of e^-50."""
  bounds = _normal(mu, rate).connect_dots_bounds()
  return bounds.epsilon_upper - bounds.epsilon_lower


@lru_cache(64)
def loss_of(kind: str, mu: float, rate: float, interval: float):
  """Return the PrivacyLossDistribution of one round, on this grid."""
  from dp_accounting.pld import privacy_loss_distribution as pld

  how = {'value_discretization_interval': interval}
  if kind == KNOWN:
    drawn = pld.from_gaussian_mechanism(1 / mu, **how)
    return drawn.compute_mixture(pld.identity(interval), rate)
  if kind == JOINS or rate == 1:
    return pld.from_gaussian_mechanism(1 / mu, sampling_prob=rate, **how)
  from dp_accounting.pld import pld_pmf

  upper = _normal(mu, rate).connect_dots_bounds().epsilon_upper
  last = math.ceil(upper / interval)
  deltas = of_replaced(mu, rate, interval * np.arange(-last, last + 1))
  return pld.PrivacyLossDistribution(
    pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
      interval, -last, last, deltas
    )
  )


def of_replaced(mu: float, rate: float, epsilons: np.ndarray) -> np.ndarray:
  """Return the profile of REPLACE at these epsilons, in increasing order."""
  below, above = np.split(epsilons, [np.searchsorted(epsilons, 0)])
  removed = _normal(mu, rate).get_delta_for_epsilon(above)
  added = _normal(mu, rate, 'ADD').get_delta_for_epsilon(below)
  return np.concatenate([added, removed])


def _normal(mu, rate, direction='REMOVE'):
  from dp_accounting.pld import privacy_loss_mechanism as mechanisms

  kind = mechanisms.AdjacencyType[direction]
  return mechanisms.GaussianPrivacyLoss(
    1 / mu, sampling_prob=rate, adjacency_type=kind
  )

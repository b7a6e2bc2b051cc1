"""The budget (epsilon, delta) of rounds with noise, by Renyi DP.

  Plan         rounds of one kind after another: how clients are drawn for each
  epsilon_of   noise multiplier, delta -> epsilon
  find_noise   epsilon, delta -> the least noise multiplier, by bisection

What is protected is all that one client ever sends. Two neighbouring runs
differ in whether one client takes part at all, or, where a round draws a fixed
number without replacement, in the data of one client: then a sum moves by two
clips, so that z counts as z / 2. The bounds are those of `dp-accounting`:
Mironov et al. 2019 for Poisson cohorts, Wang et al. 2019 for fixed ones.

With b bands of noise (banded_noise.py) a client may join every b-th round: T
rounds cost as ceil(T / b), of b times the rate.
"""

import math
from functools import cache
from typing import NamedTuple

from fedjax_pfl.core.errors import bad_input, check_installed

LEAST, MOST = 0.2, 1e3  # noise multipliers
PRECISION = 1e-3  # relative, of the one that is found
# The series of smaller fractional orders may not converge.
ORDERS = 2, *(x / 10 for x in range(25, 100)), *range(10, 64)
ORDERS += 128, 256, 512, 1024
# Fractional orders of fixed cohorts are only interpolated, and take seconds.
ORDERS_OF_FIXED = (*range(2, 64), 128, 256)


class Rounds(NamedTuple):
  """So many rounds, and how their clients are drawn."""

  number: int
  size: float  # of the cohort; expected, if it is random
  num_clients: int  # K
  is_poisson: bool = False
  bands: int = 1

  @property
  def is_fixed(self) -> bool:
    """Return whether a fixed number, but not everyone, is drawn."""
    return not self.is_poisson and self.size < self.num_clients


Plan = tuple[Rounds, ...]


def replaces(plan: Plan) -> bool:
  """Return whether neighbours differ in the data of a client, not in its part.

  That is the one relation for which there is a bound of fixed cohorts.
  """
  return any(rounds.is_fixed for rounds in plan)


def account(noise: float, plan: Plan):
  """Return the accountant of dp-accounting after these rounds."""
  instead = 'dp.clip=0, which is no privacy'
  check_installed('dp.clip', 'dp_accounting', [instead])
  import dp_accounting as dp
  from dp_accounting import rdp

  relations = dp.NeighboringRelation
  relation, orders = relations.ADD_OR_REMOVE_ONE, ORDERS
  if replaces(plan):
    relation, orders, noise = relations.REPLACE_ONE, ORDERS_OF_FIXED, noise / 2
  accountant, event = rdp.RdpAccountant(orders, relation), None
  for rounds in plan:
    event = dp.GaussianDpEvent(noise)
    if rounds.is_fixed:
      event = dp.SampledWithoutReplacementDpEvent(
        rounds.num_clients, rounds.size, event
      )
    elif rounds.is_poisson:
      rate = min(rounds.bands * rounds.size / rounds.num_clients, 1.0)
      event = dp.PoissonSampledDpEvent(rate, event)
    if rounds.number:
      accountant.compose(event, math.ceil(rounds.number / rounds.bands))
  return accountant


@cache
def epsilon_of(noise: float, delta: float, plan: Plan) -> float:
  """Return epsilon after these rounds; infinity without noise."""
  return float(account(noise, plan).get_epsilon(delta)) if noise else math.inf


@cache
def find_noise(epsilon: float, delta: float, plan: Plan) -> float:
  """Return a noise multiplier with which these rounds cost at most epsilon."""
  low, high = LEAST, MOST
  while high / low > 1 + PRECISION:
    middle = math.sqrt(low * high)
    if epsilon_of(middle, delta, plan) > epsilon:
      low = middle
    else:
      high = middle
  # No trial before it needs so much: of that some series do not converge.
  if high == MOST and (least := epsilon_of(high, delta, plan)) > epsilon:
    rounds = sum(rounds.number for rounds in plan)
    raise bad_input(
      'dp.epsilon',
      got=epsilon,
      expected=f'{least:.2g} or more: what {rounds} rounds cost with noise of '
      f'{high:g} clips',
      choices=['a larger dp.epsilon or dp.delta', 'fewer rounds'],
      cause='a budget that no noise reaches, or a delta far below 1 / clients',
    )
  return high

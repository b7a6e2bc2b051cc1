"""The budget (epsilon, delta) of rounds with noise.

  Plan         rounds of one kind after another: how clients are drawn for each
  epsilon_of   noise multiplier, delta -> epsilon
  find_noise   epsilon, delta -> the least noise multiplier
  neighbours   what two runs differ in that are to look alike
  theorem      which bound that is

Two neighbouring runs differ in whether one client takes part at all, or, where
a round draws a fixed number without replacement, in all that one client ever
sends: then a sum moves by two clips, so that z counts as z / 2.

How rounds count, by `accounting`, with q = size / K (why: privacy_loss.py):
  all                  Gaussian of sqrt(T) / z, exact (Balle and Wang 2018)
  poisson              JOINS
  cyclic               b bands of noise (banded_noise.py), a client may join
                       every b-th round: ceil(T / b) Poisson rounds of rate b q
                       (Choquette-Choo et al. 2023, theorem 4)
  without_replacement  REPLACE; with state KNOWN: what others send depends on
                       who was drawn before, which REPLACE does not cover
Never more than if each client were in each round: 'all' of as many rounds.
"""

import math
from collections import Counter
from functools import cache, reduce
from typing import NamedTuple

import numpy as np

from fedjax_pfl.around.privacy_loss import (
  JOINS,
  KNOWN,
  REPLACE,
  loss_of,
  width,
)
from fedjax_pfl.core.errors import bad_input, check_installed

# In the range of a loss. Eight times as many change epsilon by 1e-7 to 1e-4 of
# it, and by 4e-4 in 1000 rounds of 1 of 1000 clients.
NUM_POINTS = 2**13
MOST_EPSILON = 1e5  # of a plan whose sampling is worth an account
LEAST, MOST = 0.2, 1e3  # noise multipliers
PRECISION = 1e-3  # relative: the least is at most so much below
THEOREMS = {
  'all': 'all clients in each round: the Gaussian mechanism, exactly '
  '(Balle and Wang 2018)',
  'poisson': 'Poisson cohorts: the subsampled Gaussian mechanism, add and '
  'remove composed apart (Zhu, Dong and Wang 2022)',
  'cyclic': 'groups that take turns: as fewer rounds of larger Poisson cohorts '
  '(Choquette-Choo et al. 2023, theorem 4)',
  'without_replacement': 'cohorts without replacement: a pair that dominates '
  'one replaced client (Balle, Barthe and Gaboardi 2018)',
  KNOWN: 'cohorts without replacement of clients that keep a state: no '
  'amplification by secrecy, as if it were published who is in each round',
}


class Rounds(NamedTuple):
  """So many rounds, and how their clients are drawn."""

  number: int
  size: float  # of the cohort; expected, if it is random
  num_clients: int  # K
  # 'without_replacement', 'poisson', 'cyclic', or 'all'
  accounting: str = 'all'
  bands: int = 1  # of 'cyclic': groups that take turns
  has_state: bool = False  # uploads depend on what clients keep between rounds
  noise: float = 0.0  # multiplier; 0: that of the run


Plan = tuple[Rounds, ...]


def neighbours(plan: Plan) -> str:
  """Return what neighbouring runs differ in.

  For cohorts of a fixed size there is a bound of replaced data alone.
  """
  kinds = {_kind_of(rounds) for rounds in plan}
  is_fixed = kinds & {'without_replacement', KNOWN}
  return 'replace one' if is_fixed else 'add or remove one'


def theorem(plan: Plan) -> str:
  """Return the bound of these rounds, for people."""
  kinds = dict.fromkeys(_kind_of(rounds) for rounds in plan)
  return '; '.join(THEOREMS[kind] for kind in kinds)


@cache
def epsilon_of(noise: float, delta: float, plan: Plan) -> float:
  """Return epsilon after these rounds; infinity without noise."""
  mechanisms = _mechanisms(noise, plan)
  total = sum(mu**2 * number for (_, mu, _), number in mechanisms.items())
  if total in (0.0, math.inf):
    return float(total)
  instead = ['dp.clip=0, which is no privacy']
  check_installed('dp.clip', 'dp_accounting', instead)
  from dp_accounting import gaussian_mechanism

  with np.errstate(divide='ignore'):  # of much noise
    at_most = gaussian_mechanism.get_epsilon_gaussian(total**-0.5, delta)
  if at_most > MOST_EPSILON or all(rate == 1 for _, _, rate in mechanisms):
    return float(at_most)
  widths = [width(mu, rate) for _, mu, rate in mechanisms]
  interval = max(min(widths), max(widths) / 64) / NUM_POINTS
  losses = (
    loss_of(*mechanism, interval).self_compose(number)
    for mechanism, number in mechanisms.items()
  )
  loss = reduce(lambda one, other: one.compose(other), losses)
  return float(min(at_most, loss.get_epsilon_for_delta(delta)))


@cache
def find_noise(epsilon: float, delta: float, plan: Plan) -> float:
  """Return the least noise multiplier that costs at most epsilon."""
  from scipy.optimize import brentq

  def over(log_noise):
    spent = epsilon_of(math.exp(log_noise), delta, plan)
    return math.log(max(spent, epsilon * 1e-9) / epsilon)

  if epsilon_of(LEAST, delta, plan) <= epsilon:
    return LEAST
  if (least := epsilon_of(MOST, delta, plan)) > epsilon:
    rounds = sum(rounds.number for rounds in plan)
    raise bad_input(
      'dp.epsilon',
      got=epsilon,
      expected=f'{least:.3g} or more: what {rounds} rounds, with those of the '
      f'start, cost with new noise of {MOST:g} clips',
      choices=['a larger dp.epsilon or dp.delta', 'fewer rounds'],
      cause='what the start has spent, or a delta far below 1 / clients',
    )
  least, most = math.log(LEAST), math.log(MOST)
  noise = math.exp(brentq(over, least, most, xtol=PRECISION / 2))
  while epsilon_of(noise, delta, plan) > epsilon:
    noise *= 1 + PRECISION / 2
  return noise


def _kind_of(rounds: Rounds) -> str:
  """Return which bound these rounds have; refuse those that have none."""
  choices = ('without_replacement', 'poisson', 'cyclic', 'all')
  if rounds.accounting not in choices:
    raise bad_input(
      'sampling',
      got=rounds.accounting,
      expected='a way to draw clients whose budget is proven',
      choices=choices,
      cause='cohorts by a schedule or a rule of your own, with dp.clip',
    )
  assert rounds.bands == 1 or rounds.accounting == 'cyclic'
  if rounds.accounting != 'without_replacement':
    return rounds.accounting
  if rounds.size >= rounds.num_clients:
    return 'all'
  return KNOWN if rounds.has_state else rounds.accounting


def _mechanisms(noise: float, plan: Plan) -> dict[tuple, int]:
  """Return how often each (kind, mu, rate) of privacy_loss.py takes place."""
  by_two = neighbours(plan) == 'replace one'
  number, every_time = Counter(), 0.0
  for rounds in plan:
    kind, z = _kind_of(rounds), rounds.noise or noise
    mu = (2 if by_two else 1) / z if z else math.inf
    rate = min(rounds.bands * rounds.size / rounds.num_clients, 1)
    times = math.ceil(rounds.number / rounds.bands)
    if times and (kind == 'all' or rate == 1):
      every_time += times * mu**2  # as one round
    elif times:
      other = REPLACE if by_two else JOINS
      number[KNOWN if kind == KNOWN else other, mu, rate] += times
  return number | ({(JOINS, every_time**0.5, 1): 1} if every_time else {})

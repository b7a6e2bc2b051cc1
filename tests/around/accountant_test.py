"""Budgets: by a second library, by hand, of explicit data, at their edges."""

import itertools
import math

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.around import accountant, privacy_loss
from fedjax_pfl.around.accountant import Rounds

pytestmark = pytest.mark.usefixtures('accounting')
DELTA = 1e-3
FIXED = 'without_replacement'
# docs/howto/privacy.md: noise at epsilon 8 and 2. The epsilon beside each is
# that of prv_accountant 0.2.0 (Gopi, Lee and Wutschitz 2021), at this delta.
STATED = 1e-4
SHOWN = {
  'all': (Rounds(60, 180, 180), {4.207: 7.99915, 13.43: 2.00073}),
  'poisson': (
    Rounds(60, 18.0, 180, 'poisson'),
    {0.7660: 7.99702, 1.641: 1.99973},
  ),
  'cyclic of 5': (
    Rounds(60, 18.0, 180, 'cyclic', 5),
    {1.155: 7.99940, 3.231: 2.00015},
  ),
  'cyclic of 10': (
    Rounds(60, 18.0, 180, 'cyclic', 10),
    {1.330: 8.00193, 4.250: 1.99907},
  ),
  'fixed': (Rounds(100, 10, 100, FIXED), {1.827: 7.99815, 4.2265: 1.99870}),
}


@pytest.mark.parametrize('name', SHOWN)
def test_documented_budgets_are_those_of_a_second_library(name):
  rounds, by_prv = SHOWN[name]
  for noise, epsilon in by_prv.items():
    got = accountant.epsilon_of(noise, STATED, (rounds,))
    assert got == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize('name', SHOWN)
def test_the_least_noise_is_found(name):
  """It spends at most epsilon, and hardly less noise spends more."""
  plan = SHOWN[name][:1]
  noise = accountant.find_noise(8.0, STATED, plan)
  less = noise * (1 - 2 * accountant.PRECISION)
  spent = [accountant.epsilon_of(z, STATED, plan) for z in (noise, less)]
  assert spent[0] <= 8 < spent[1]


# ---- cohorts of a fixed size


def density(x, vectors, client, size, noise):
  """Return that of the sum of a cohort, of 4 clients without replacement."""
  values = [client, *vectors]
  cohorts = list(itertools.combinations(values, size))
  sums = np.array([sum(cohort) for cohort in cohorts])
  each = np.exp(-((x[:, None] - sums) ** 2) / (2 * noise**2))
  return each.mean(1) / (noise * math.sqrt(2 * math.pi))


@pytest.mark.parametrize('size', [1, 2, 3])
def test_no_data_exceed_the_pair_of_replacement(size):
  """All epsilon of one round; two rounds, with other data in the second.

  By integration of the true densities of 1 + 3 clients who send from -1 to 1.
  """
  noise, x = 1.3, np.linspace(-16, 16, 8001)
  width, epsilon = x[1] - x[0], np.linspace(-4, 4, 81)
  bound = privacy_loss.of_replaced(2 / noise, size / 4, epsilon)
  rng = np.random.default_rng(0)
  data = [([-1.0] * 3, 1.0, -1.0), ([1.0] * 3, 1.0, -1.0)]
  data += [(rng.uniform(-1, 1, 3), *rng.uniform(-1, 1, 2)) for _ in range(20)]
  runs = [
    [density(x, others, own, size, noise) for own in mine]
    for others, *mine in data
  ]
  tight = 0
  for one, other in runs:
    for p, q in ((one, other), (other, one)):
      gain = np.maximum(p - np.exp(epsilon)[:, None] * q, 0).sum(1) * width
      assert (gain <= bound + 1e-6).all()
      tight = max(tight, np.max(gain[epsilon > 0] / bound[epsilon > 0]))
  assert tight > 0.999  # all others at -1, and the client at 1
  plan = (Rounds(2, size, 4, FIXED),)
  spent = accountant.epsilon_of(noise, 0.01, plan)
  for (one, other), (third, fourth) in itertools.product(runs[:4], runs[:4]):
    p, q = (
      np.outer(*(f[::10] for f in own))
      for own in ((one, third), (other, fourth))
    )
    delta = np.maximum(p - math.exp(spent) * q, 0).sum() * (10 * width) ** 2
    assert delta <= 0.01


def test_what_clients_keep_is_accounted_with_known_cohorts():
  """By the sum over how often a client is drawn, of exact Gaussians."""
  from scipy.special import comb, log_ndtr, ndtr  # takes a second to load

  noise, number, q = 3.0, 30, 0.1
  plain = Rounds(number, 10, 100, FIXED)
  kept = plain._replace(has_state=True)
  everyone = accountant.epsilon_of(noise / 2, DELTA, (Rounds(number, 1, 1),))
  epsilon = accountant.epsilon_of(noise, DELTA, (kept,))
  assert accountant.epsilon_of(noise, DELTA, (plain,)) < epsilon < everyone
  drawn = np.arange(1, number + 1)
  mu = 2 / noise * np.sqrt(drawn)
  deltas = ndtr(mu / 2 - epsilon / mu)
  deltas -= np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
  chances = comb(number, drawn) * q**drawn * (1 - q) ** (number - drawn)
  assert chances @ deltas == pytest.approx(DELTA, rel=1e-3)
  assert 'no amplification' in accountant.theorem((kept,))
  # Nobody's draw depends on another's in these, or all are drawn.
  for name in ('poisson', 'all'):
    plans = [kept._replace(accounting=name, has_state=s) for s in (0, 1)]
    spent = [accountant.epsilon_of(noise, DELTA, (plan,)) for plan in plans]
    assert spent[0] == spent[1]


# ---- edges


def test_ways_to_draw_agree_where_they_are_the_same():
  """And nothing costs more than if each client were in each round."""

  def spent(*rounds, noise=4.0):
    return accountant.epsilon_of(noise, DELTA, rounds)

  everyone = spent(Rounds(60, 100, 100))
  assert spent(Rounds(60, 100, 100, FIXED, has_state=True)) == everyone
  assert spent(Rounds(60, 100, 100, 'poisson')) == everyone
  assert spent(Rounds(20, 9, 9), Rounds(40, 9, 9)) == everyone
  assert spent(Rounds(60, 99.9, 100, 'poisson')) == pytest.approx(
    everyone, 0.01
  )
  twice = spent(Rounds(60, 100, 100), noise=2.0)
  assert 0.9 * twice < spent(Rounds(60, 99, 100, FIXED)) <= twice
  # Beside a round without replacement, all others count by two clips, too.
  none_of = Rounds(0, 10, 100, FIXED)
  assert spent(Rounds(60, 100, 100), none_of) == twice
  # 61 rounds of 4 bands are 16 of four times the rate.
  banded = spent(Rounds(61, 5.0, 100, 'cyclic', 4))
  assert banded == spent(Rounds(16, 20.0, 100, 'poisson'))
  assert spent(Rounds(61, 25.0, 100, 'cyclic', 4)) == spent(Rounds(16, 1, 1))


@pytest.mark.parametrize('accounting', ['all', 'poisson', 'cyclic', FIXED])
def test_rounds_of_before_have_their_own_noise(accounting):
  rounds = Rounds(2, 10.0, 100, accounting)
  before, twice = rounds._replace(noise=2.0), rounds._replace(number=4)
  spent = accountant.epsilon_of(2.0, DELTA, (twice,))
  for noise, plan in ((2.0, (before, rounds)), (0.0, (before, before))):
    assert accountant.epsilon_of(noise, DELTA, plan) == spent
  assert accountant.epsilon_of(0.0, DELTA, (before, rounds)) == math.inf
  less = accountant.epsilon_of(8.0, DELTA, (before, rounds))
  alone = accountant.epsilon_of(2.0, DELTA, (rounds,))
  assert alone < less < 1.05 * alone
  if accounting != 'all':  # the search is the same, and takes long
    return
  noise = accountant.find_noise(spent, DELTA, (before, rounds))
  assert noise == pytest.approx(2.0, rel=accountant.PRECISION)


@pytest.mark.parametrize('accounting', ['all', 'poisson', 'cyclic', FIXED])
def test_edges_of_a_budget(accounting):
  rounds = Rounds(20, 10.0, 100, accounting)
  expected = 'replace one' if accounting == FIXED else 'add or remove one'
  assert accountant.neighbours((rounds,)) == expected
  assert accountant.epsilon_of(1.0, DELTA, (rounds._replace(number=0),)) == 0
  assert accountant.epsilon_of(0.0, DELTA, (rounds,)) == math.inf
  spent = [
    accountant.epsilon_of(noise, 1e-10, (rounds,))
    for noise in (0.01, 0.2, 1, 5, 100, 1e4, 1e6)
  ]
  assert spent == sorted(spent, reverse=True)
  assert 1e4 < spent[0] < math.inf and 0 <= spent[-1] < 1e-4
  message = refused(accountant.find_noise, 1e-4, 1e-9, (rounds,))
  assert message.startswith('dp.epsilon: got 0.0001, expected 0.')
  assert accountant.find_noise(1e6, DELTA, (rounds,)) == accountant.LEAST


def test_cohorts_whose_budget_nobody_has_proven_are_refused():
  for accounting in (None, 'fixed'):
    plan = (Rounds(9, 1, 9, accounting),)
    for ask in (
      lambda plan: accountant.epsilon_of(1.0, DELTA, plan),
      lambda plan: accountant.find_noise(8.0, DELTA, plan),
      accountant.neighbours,
      accountant.theorem,
    ):
      message = refused(ask, plan)
      assert message.startswith(f'sampling: got {accounting!r}, expected a way')

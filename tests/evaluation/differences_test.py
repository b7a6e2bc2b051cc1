"""Differences and their intervals: sums by hand, and how often they cover."""

import math
import tracemalloc

import numpy as np
import pytest

from fedjax_pfl.results.statistics.differences import (
  LEVEL,
  Difference,
  error_of_clients,
  holm,
  over_seeds,
  paired_difference,
  within,
)

RNG = np.random.default_rng(0)
LOW = RNG.uniform(20, 90, 40)
HIGH = LOW + RNG.uniform(0, 8, 40)
NAN = math.nan


def width(one):
  return one.high - one.low


def test_a_mean_over_seeds_of_means_over_clients():
  ours = [np.array([80.0, 60.0, NAN]), np.array([50.0])]
  theirs = [np.array([70.0, 56.0, NAN]), np.array([49.0])]
  one = paired_difference(ours, theirs)
  assert one.mean == pytest.approx(((10 + 4) / 2 + 1) / 2)
  half = 12.7062 * 3  # Student's t: the means of the seeds are 7 and 1
  assert (one.low, one.high) == pytest.approx((4 - half, 4 + half))
  one = paired_difference(ours[:1], theirs[:1])  # its clients alone: 10 and 4
  assert one[:3] == (7, 4, 10) and one.sign == 1
  assert paired_difference(theirs[:1], ours[:1]).sign == -1


def test_the_interval_covers_seeds_too():
  """Constant within seeds, apart between them: one seed alone is certain."""
  gains = [np.full(20, gain) for gain in (1.0, 2.0, 3.0)]
  zeros = [np.zeros(20)] * 3
  one = paired_difference(gains, zeros)  # all draws are above 0: 1 to 3
  half = 4.30265 / 3**0.5
  want = pytest.approx((2 - half, 2 + half), abs=1e-4)
  assert one[1:3] == want and one.sign == 0
  assert paired_difference(gains[:1], zeros[:1])[1:3] == (1.0, 1.0)
  # Seeds that agree: the spread of the clients is left.
  one = paired_difference([HIGH] * 3, [LOW] * 3)
  assert one.low < one.mean - 0.2 and one.high > one.mean + 0.2


def test_clients_of_all_seeds_are_drawn_once():
  """As many seeds as clients, with the same spread: sqrt(2) of that of one."""
  gains, zeros = HIGH - LOW, np.zeros((40, 40))
  alone = paired_difference([gains], zeros[:1])
  both = paired_difference(gains[:, None] + gains, zeros, same_clients=True)
  assert width(both) == pytest.approx(2**0.5 * width(alone), rel=0.05)


def test_differences_of_many_clients_take_little_memory():
  """All draws at once are 0.6 GB, in each of two arrays."""
  tracemalloc.start()
  try:
    paired_difference([np.arange(20_000.0)], [np.zeros(20_000)])
    assert tracemalloc.get_traced_memory()[1] < 50e6
  finally:
    tracemalloc.stop()


def test_a_p_by_hand():
  """scipy.stats.ttest_1samp([4, 5, 6], 0) gives t = 8.660, p = 0.01307."""
  one = over_seeds([4.0, 5.0, 6.0])
  assert one.p == pytest.approx(0.013072, abs=1e-5)
  assert over_seeds([2.0, 2.0]).p == 0 and over_seeds([0.0, 0.0]).p == 1
  alone = over_seeds([2.0])
  assert math.isnan(alone.p) and alone.sign == 0


def test_holm_by_hand():
  """Of M = 4: 0.01 times 4, 0.02 times 3; 0.03 times 2, no lower; 1."""
  family = [Difference(1, 0, 2, p) for p in (0.03, 0.01, 0.02)]
  assert holm([*family, None]) == pytest.approx([0.06, 0.04, 0.06, 1])


# Clients, the tests of each, their accuracy, seeds: as CIFAR-10, the demo, the
# digits, and the two of lite.
TESTED = [(50, 25, 0.57, 3), (90, 3, 0.97, 3), (20, 17, 0.99, 3)]
TESTED += [(20, 500, 0.85, 5), (5, 71, 0.99, 5)]
BOARDS, METHODS = 200, 35


@pytest.mark.parametrize('ratio', [0, 1, 10])
@pytest.mark.parametrize(('clients', 'tests', 'accuracy', 'seeds'), TESTED)
def test_boards_of_equal_methods_have_no_star(
  clients, tests, accuracy, seeds, ratio
):
  """`ratio` of variances: of the seeds to that of the tested images.

  By the spread over seeds alone 10 to 45 of 100 boards of the digits have one.
  """
  rng = np.random.default_rng(1)
  share = accuracy * (1 - accuracy) / (clients * tests)
  own = rng.normal(size=(BOARDS, METHODS, seeds, 1)) * np.sqrt(ratio * share)
  chance = np.clip(accuracy + own, 0, 1)
  correct = rng.binomial(tests, chance, (BOARDS, METHODS, seeds, clients))
  gaps = (correct[:, 1:] - correct[:, :1]) * (100 / tests)
  every = [
    [over_seeds(x.mean(1), error_of_clients(x)) for x in board]
    for board in gaps
  ]
  covers = [[x.low <= 0 <= x.high for x in board] for board in every]
  assert np.mean(covers) >= 0.95  # of 6,800 intervals
  ps = [[x.p for x in board] for board in every]
  families = [[Difference(0.0, p=p) for p in board] for board in ps]
  found = np.mean([min(holm(one)) < LEVEL for one in families])
  assert found <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / BOARDS)
  # Holm keeps them away where the seeds differ, the clients' error elsewhere.
  assert ratio < 10 or (np.min(ps, 1) < LEVEL).mean() > 0.15
  by_seeds = [[over_seeds(x.mean(1)).p for x in board] for board in gaps]
  assert (np.min(by_seeds, 1) < LEVEL).mean() > 0.4


@pytest.mark.parametrize(('mean', 'expected'), [(1.0, 0.05), (0.0, 0.99)])
def test_methods_a_point_apart_are_seldom_called_equivalent(mean, expected):
  draws = np.random.default_rng(0).normal(mean, 0.4, (1000, 5))
  share = np.mean([within(own, 1.0) < LEVEL for own in draws])
  assert share == pytest.approx(expected, abs=0.02)


def test_seeds_that_agree_by_chance_have_the_error_of_their_clients():
  gaps = np.array([[4.0, 0.0], [3.0, 1.0], [NAN, 2.0]])
  error = math.sqrt((8 / 2 + 2 / 2 + 0) / 9)  # each seed has a mean of 2
  one = over_seeds(np.nanmean(gaps, 1), error_of_clients(gaps))
  assert one.high - 2 == pytest.approx(4.30265 * error, abs=1e-4)
  assert over_seeds([2.0] * 3).p == 0 and one.p > 0.1

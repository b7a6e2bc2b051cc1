"""Differences and their intervals: sums by hand, and how often they cover."""

import math
import tracemalloc

import numpy as np
import pytest

from fedjax_pfl.evaluation.differences import (
  OVER_IMAGES,
  OVER_SEEDS,
  PAIRED,
  UNPAIRED,
  Score,
  paired_difference,
  simultaneous_differences,
  stated_difference,
)
from fedjax_pfl.evaluation.summary import bootstrap_interval

S, K = 3, 20
RNG = np.random.default_rng(0)
LOW = RNG.uniform(20, 90, 40)
HIGH = LOW + RNG.uniform(0, 8, 40)
NAN = math.nan


def noise(number, seed=0):
  return np.random.default_rng(seed).normal(size=(number, S, K))


def scores(sign, accuracy, data='one'):
  accuracy = np.asarray(accuracy, float)
  numbers = np.nanmean(accuracy), np.nanstd(accuracy), 40
  return Score(sign, *numbers, accuracy, data)


PAIR = [scores(1, HIGH), scores(-1, LOW)]


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


def test_more_comparisons_have_wider_intervals():
  """Of 30 true zeros one alone is missed often, all together rarely."""
  missed, alone = 0, 0
  for seed in range(15):
    values = noise(30, seed)
    found = simultaneous_differences(values)
    missed += any(one.sign for one in found)
    assert width(found[0]) > width(*simultaneous_differences(values[:1]))
    alone += (np.abs(values.mean((1, 2))) > 1.96 / np.sqrt(S * K)).any()
  assert missed <= 1 < alone


def test_clients_in_common_are_subtracted_before_they_are_drawn():
  found = stated_difference([PAIR])
  assert found.kind == PAIRED
  assert [found.low, found.high] == bootstrap_interval(HIGH - LOW)
  # One that is missing makes all unpaired: the spread of the clients is in it.
  wide = stated_difference([[PAIR[0], PAIR[1]._replace(clients=None)]])
  assert wide.kind == UNPAIRED and width(wide) > 5 * width(found)


PLAIN = Score(1, 80, 6, 100), Score(-1, 70, 8, 100)
IMAGES = Score(1, 50, None, 10_000), Score(-1, 50, None, 10_000)
THREE = [(Score(1, 50 + x), Score(-1, 50)) for x in (1, 2, 3)]


@pytest.mark.parametrize(
  ('seeds', 'mean', 'half', 'kind'),
  [
    ([PLAIN] * 2, 10, 1.96 / 2**0.5, UNPAIRED),  # half of the variance
    # One number on a test set: the error of a share.
    ([IMAGES], 0, 1.96 * 0.5 * 2**0.5, OVER_IMAGES),
    # Student's t of two degrees of freedom; the deviation is 1.
    (THREE, 2, 4.30265 / 3**0.5, OVER_SEEDS),
  ],
)
def test_an_interval_from_deviations_by_hand(seeds, mean, half, kind):
  found = stated_difference(seeds)
  want = mean, mean - half, mean + half
  assert found[:3] == pytest.approx(want, abs=1e-4)
  assert found.kind == kind


def test_four_cells_are_paired_in_their_partitions():
  """A gain of 6 in one partition less one of 2 in the other."""
  few = [scores(1, LOW + 6, 'few'), scores(-1, LOW, 'few')]
  many = [scores(-1, HIGH + 2, 'many'), scores(1, HIGH, 'many')]
  found = stated_difference([few + many])
  assert found[:3] == pytest.approx((4.0, 4.0, 4.0))

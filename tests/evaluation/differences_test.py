"""Differences and their intervals: sums by hand, and how often they cover."""

import math

import numpy as np
import pytest

from fedjax_pfl.evaluation.differences import (
  OVER_IMAGES,
  OVER_SEEDS,
  PAIRED,
  UNPAIRED,
  Score,
  differences_by_client,
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


# ---- Two settings ------------------------------------------------------------


def test_a_mean_over_seeds_of_means_over_clients():
  ours = [np.array([80.0, 60.0, NAN]), np.array([50.0])]
  theirs = [np.array([70.0, 56.0, NAN]), np.array([49.0])]
  one = paired_difference(ours, theirs)
  assert one.mean == pytest.approx(((10 + 4) / 2 + 1) / 2)
  # Twice the first seed, and of each draw of its clients the mean: 10, 7 or 4.
  assert (one.low, one.high) == pytest.approx((1, (10 + 7) / 2))
  assert one.sign == 1 and paired_difference(theirs, ours).sign == -1
  nothing = paired_difference([np.array([NAN])], [np.array([NAN])])
  assert math.isnan(nothing.mean) and nothing.sign == 0


def test_what_clients_share_is_not_noise():
  """Clients differ by 30 points, settings by 1: unpaired it would drown."""
  base = 60 + 30 * noise(1)[0]
  better, apart = base + 1 + 0.5 * noise(1, 1)[0], 61 + 30 * noise(1, 2)[0]
  signs = [paired_difference(one, base).sign for one in (better, base, apart)]
  assert signs == [1, 0, 0]


def test_the_interval_covers_seeds_too():
  """Constant within seeds, apart between them: one seed alone is certain."""
  gains = [np.full(20, gain) for gain in (-1.0, 2.0, 5.0)]
  zeros = [np.zeros(20)] * 3
  assert paired_difference(gains, zeros)[1:3] == (-1.0, 5.0)
  assert paired_difference(gains[:1], zeros[:1])[1:3] == (-1.0, -1.0)


# ---- Many methods ------------------------------------------------------------


def test_one_of_many_has_about_the_interval_of_a_pair():
  (values,) = 2.0 + noise(1)
  (one,) = simultaneous_differences(values[None])
  pair = paired_difference([*values], [np.zeros(K)] * S)
  np.testing.assert_allclose(one[:3], pair[:3], atol=0.05)
  (apart,) = simultaneous_differences(values[None] + [[[-3.0], [0.0], [3.0]]])
  assert apart.mean == pytest.approx(one.mean)
  assert width(apart) > 3 * width(one)  # a seed that differs


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


def test_equal_methods_and_clients_without_tests():
  values = noise(2)
  values[1] = 0.0  # the same method under another name
  values[:, 0, :5] = NAN
  one, same = simultaneous_differences(values)
  assert same[:3] == (0, 0, 0)
  expected = np.mean([values[0, 0, 5:].mean(), *values[0, 1:].mean(1)])
  np.testing.assert_allclose(one.mean, expected)
  (alone,) = simultaneous_differences(values[:1])
  np.testing.assert_allclose(one[:3], alone[:3])  # 0 +- 0 widens no other


# ---- Numbers of which not all is known ---------------------------------------


def test_clients_in_common_are_subtracted_before_they_are_drawn():
  found = stated_difference([PAIR])
  assert found.kind == PAIRED
  assert [found.low, found.high] == bootstrap_interval(HIGH - LOW)
  for gone in ((0, 1), (1,)):  # one that is missing makes all unpaired
    means = [
      one._replace(clients=None) if place in gone else one
      for place, one in enumerate(PAIR)
    ]
    wide = stated_difference([means])
    assert wide.kind == UNPAIRED
    # The spread of the clients is in it, that of the differences is not.
    assert width(wide) > 5 * width(found)


PLAIN = Score(1, 80, 6, 100), Score(-1, 70, 8, 100)
IMAGES = Score(1, 50, None, 10_000), Score(-1, 50, None, 10_000)
THREE = [(Score(1, 50 + x), Score(-1, 50)) for x in (1, 2, 3)]


@pytest.mark.parametrize(
  ('seeds', 'mean', 'half', 'kind'),
  [
    ([PLAIN], 10, 1.96, UNPAIRED),
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


def test_without_a_size_there_is_no_interval():
  unknown = stated_difference([[PLAIN[0], PLAIN[1]._replace(size=0)]])
  assert unknown.mean == 10 and not unknown.has_interval


def test_two_seeds_share_the_clients_of_one_partition_alone():
  one = stated_difference([PAIR])
  assert stated_difference([PAIR, PAIR]) == one
  other = [score._replace(data='other') for score in PAIR]
  both = stated_difference([PAIR, other])
  assert both.kind == PAIRED
  assert width(both) / width(one) == pytest.approx(1 / np.sqrt(2), rel=0.1)


def test_four_cells_are_paired_in_their_partitions():
  """A gain of 6 in one partition less one of 2 in the other."""
  few = [scores(1, LOW + 6, 'few'), scores(-1, LOW, 'few')]
  many = [scores(-1, HIGH + 2, 'many'), scores(1, HIGH, 'many')]
  found = stated_difference([few + many])
  assert found[:3] == pytest.approx((4.0, 4.0, 4.0))


def test_a_client_without_an_accuracy_is_left_out():
  high, low = HIGH.copy(), LOW.copy()
  high[3] = low[7] = NAN
  (values,) = differences_by_client([scores(1, high), scores(-1, low)])
  assert values.size == 38 and np.isfinite(values).all()

"""Intervals of many paired differences that hold together."""

import numpy as np

from fedjax_pfl.evaluation.paired import paired_difference
from fedjax_pfl.evaluation.simultaneous import simultaneous_bands

S, K = 3, 20


def noise(number, scale=1.0, seed=0):
  return scale * np.random.default_rng(seed).normal(size=(number, S, K))


def test_one_difference_has_about_the_interval_of_a_pair():
  (one,) = values = 2.0 + noise(1)
  bands = simultaneous_bands(values)
  pair = paired_difference(list(one), [np.zeros(K)] * S)
  np.testing.assert_allclose(bands.mean[0], pair.mean)
  ends = bands.low[0], bands.high[0]
  np.testing.assert_allclose(ends, pair.interval, atol=0.05)


def test_more_comparisons_have_wider_intervals():
  """Of 30 true zeros one alone is missed often, all together rarely."""
  missed, alone = 0, 0
  for seed in range(15):
    values = noise(30, seed=seed)
    bands = simultaneous_bands(values)
    missed += ((bands.low > 0) | (bands.high < 0)).any()
    width = simultaneous_bands(values[:1])
    assert bands.high[0] - bands.low[0] > width.high[0] - width.low[0]
    alone += (np.abs(values.mean((1, 2))) > 1.96 / np.sqrt(S * K)).any()
  assert missed <= 1 < alone


def test_a_seed_that_differs_widens_the_interval():
  alike = noise(1)
  apart = alike + np.array([-3.0, 0.0, 3.0])[:, None]
  narrow, wide = map(simultaneous_bands, (alike, apart))
  np.testing.assert_allclose(narrow.mean, wide.mean)
  assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_equal_methods_and_clients_without_tests():
  values = noise(2)
  values[1] = 0.0  # the same method under another name
  values[:, 0, :5] = np.nan
  bands = simultaneous_bands(values)
  assert bands.low[1] == bands.mean[1] == bands.high[1] == 0
  expected = np.mean([values[0, 0, 5:].mean(), *values[0, 1:].mean(1)])
  np.testing.assert_allclose(bands.mean[0], expected)
  alone = simultaneous_bands(values[:1])  # 0 +- 0 widens no other interval
  np.testing.assert_allclose(bands.high[0], alone.high[0])

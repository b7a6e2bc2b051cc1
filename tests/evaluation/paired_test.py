"""The paired difference against sums by hand, and how often it covers."""

import math

import numpy as np
import pytest

from fedjax_pfl.evaluation.paired import paired_difference


def test_a_mean_over_seeds_of_means_over_clients():
  ours = [np.array([80.0, 60.0, math.nan]), np.array([50.0])]
  theirs = [np.array([70.0, 56.0, math.nan]), np.array([49.0])]
  one = paired_difference(ours, theirs)
  assert one.mean == pytest.approx(((10 + 4) / 2 + 1) / 2)
  low, high = one.interval
  # Twice the first seed, and of each draw of its clients the mean: 10, 7 or 4.
  assert low == pytest.approx(1) and high == pytest.approx((10 + 7) / 2)
  assert not one.is_noise


def test_what_clients_share_is_not_noise():
  """Clients differ by 30 points, settings by 1: unpaired it would drown."""
  rng = np.random.default_rng(0)
  base = [rng.normal(60, 30, 50) for _ in range(3)]
  better = [one + rng.normal(1, 0.5, 50) for one in base]
  assert not paired_difference(better, base).is_noise
  assert paired_difference(base, base).is_noise
  apart = [rng.normal(61, 30, 50) for _ in range(3)]
  assert paired_difference(apart, base).is_noise


def test_the_interval_covers_seeds_too():
  """Constant within seeds, apart between them: one seed alone is certain."""
  gains = [np.full(20, gain) for gain in (-1.0, 2.0, 5.0)]
  zeros = [np.zeros(20)] * 3
  assert paired_difference(gains, zeros).interval == (-1.0, 5.0)
  assert paired_difference(gains[:1], zeros[:1]).interval == (-1.0, -1.0)


def test_without_clients_nothing_is_known():
  one = paired_difference([np.array([math.nan])], [np.array([math.nan])])
  assert math.isnan(one.mean) and one.is_noise

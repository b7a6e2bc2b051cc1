"""Differences and their intervals, against values by hand."""

import numpy as np
import pytest

from fedjax_pfl.evaluation.summary import bootstrap_interval
from fedjax_pfl.reproduction.claims import intervals
from fedjax_pfl.reproduction.claims.intervals import Number, interval

RNG = np.random.default_rng(0)
LOW = RNG.uniform(20, 90, 40)
HIGH = LOW + RNG.uniform(0, 8, 40)


def of_clients(sign, accuracy, data='one'):
  accuracy = np.asarray(accuracy, float)
  return Number(
    sign, np.nanmean(accuracy), np.nanstd(accuracy), 40, accuracy, data
  )


def test_clients_in_common_are_subtracted_before_they_are_drawn():
  pair = [of_clients(1, HIGH), of_clients(-1, LOW)]
  found = interval([pair])
  assert found.kind == intervals.PAIRED
  assert [found.low, found.high] == bootstrap_interval(HIGH - LOW)
  means = [one._replace(clients=None) for one in pair]
  wide = interval([means])
  assert wide.kind == intervals.UNPAIRED
  # The spread of the clients is in it, that of the differences is not.
  assert wide.high - wide.low > 5 * (found.high - found.low)
  assert wide.low < found.low < found.high < wide.high


def test_the_unpaired_interval_by_hand():
  pair = [Number(1, 80.0, 6.0, 100), Number(-1, 70.0, 8.0, 100)]
  found = interval([pair])
  assert found[:2] == pytest.approx((10 - 1.96, 10 + 1.96))
  # Two seeds: half of the variance.
  found = interval([pair, pair])
  half = 1.96 / np.sqrt(2)
  assert found[:2] == pytest.approx((10 - half, 10 + half))


def test_one_score_that_is_missing_makes_all_unpaired():
  pair = [of_clients(1, HIGH), of_clients(-1, LOW)._replace(clients=None)]
  assert interval([pair]).kind == intervals.UNPAIRED


def test_three_seeds_have_students_interval():
  seeds = [[Number(1, 50.0 + x), Number(-1, 50.0)] for x in (1.0, 2.0, 3.0)]
  found = interval(seeds)
  half = 4.30265 / np.sqrt(3)  # t of two degrees of freedom; deviation 1
  assert found.kind == intervals.OVER_SEEDS
  assert found[:2] == pytest.approx((2 - half, 2 + half), abs=1e-4)
  assert intervals.difference(seeds) == pytest.approx(2.0)


def test_two_seeds_of_one_partition_share_its_clients():
  pair = [of_clients(1, HIGH), of_clients(-1, LOW)]
  assert interval([pair, pair]) == interval([pair])


def test_two_seeds_are_clients_of_two_partitions():
  pair = [of_clients(1, HIGH), of_clients(-1, LOW)]
  other = [one._replace(data='other') for one in pair]
  found = interval([pair, other])
  one = interval([pair])
  assert found.kind == intervals.PAIRED
  width = (found.high - found.low) / (one.high - one.low)
  assert width == pytest.approx(1 / np.sqrt(2), rel=0.1)


def test_four_cells_are_paired_in_their_partitions():
  """A gain of 6 in one partition less one of 2 in the other."""
  few = [of_clients(1, LOW + 6, 'few'), of_clients(-1, LOW, 'few')]
  many = [of_clients(-1, HIGH + 2, 'many'), of_clients(1, HIGH, 'many')]
  assert intervals.difference([few + many]) == pytest.approx(4.0)
  assert interval([few + many])[:2] == pytest.approx((4.0, 4.0))


def test_a_client_without_an_accuracy_is_left_out():
  high, low = HIGH.copy(), LOW.copy()
  high[3] = low[7] = np.nan
  (values,) = intervals.paired_differences(
    [of_clients(1, high), of_clients(-1, low)]
  )
  assert values.size == 38 and np.isfinite(values).all()


def test_one_number_on_a_test_set_has_the_error_of_a_share():
  pair = [Number(1, 50.0, None, 10_000), Number(-1, 50.0, None, 10_000)]
  found = interval([pair])
  assert found.kind == intervals.OVER_IMAGES
  half = 1.96 * 0.5 * np.sqrt(2)
  assert found[:2] == pytest.approx((-half, half))
  assert interval([[pair[0], pair[1]._replace(size=0)]]) is None

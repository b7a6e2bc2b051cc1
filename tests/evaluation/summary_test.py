"""Summaries against arithmetic done by hand."""

import math

import numpy as np
import pytest

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import summary


def make_scores(correct, count):
  return Scores(np.array(correct), np.array(count), np.zeros(len(count)))


def test_three_unequal_clients_by_hand():
  # 50 %, 100 %, 30 %: mean 60, deviations -10, 40, -30, so the population
  # variance is 2600/3; pooled 5 + 2 + 30 of 10 + 2 + 100.
  got = summary.summarise(make_scores([5, 2, 30], [10, 2, 100]))
  assert got['mean'] == pytest.approx(60)
  assert got['std'] == pytest.approx(math.sqrt(2600 / 3))
  assert got['pooled'] == pytest.approx(100 * 37 / 112)
  assert got['worst_decile'] == pytest.approx(30)  # ceil(0.3) = 1 client
  assert (got['num_clients'], got['num_left_out']) == (3, 0)


def test_other_measures_by_hand():
  """Means over clients with examples; without measures that are None."""
  scores = make_scores([5, 2, 0, 1], [10, 2, 0, 4])._replace(
    loss=np.array([1.0, 3.0, 9.0, 9.0]),
    top5=np.array([8, 2, 0, 4]),
    ece=np.array([0.1, 0.3, 9.0, 9.0], np.float32),
  )
  got = summary.summarise(scores, np.array([1, 1, 1, 0]))
  assert got['top5'] == pytest.approx((80 + 100) / 2)
  assert got['loss'] == pytest.approx(2)
  assert got['ece'] == pytest.approx(0.2)
  assert 'mce' not in got
  empty = summary.summarise(scores, np.zeros(4))
  assert empty.keys() == got.keys() and math.isnan(empty['ece'])


def test_worst_decile_is_the_lowest_ceil_of_a_tenth():
  correct = list(range(25))[::-1]
  got = summary.summarise(make_scores(correct, [100] * 25))
  assert got['worst_decile'] == pytest.approx((0 + 1 + 2) / 3)
  got = summary.summarise(make_scores(correct[5:], [100] * 20))
  assert got['worst_decile'] == pytest.approx((0 + 1) / 2)


def test_clients_without_tests_are_left_out():
  with_empty = summary.summarise(make_scores([5, 0, 1], [10, 0, 10]))
  without = summary.summarise(make_scores([5, 1], [10, 10]))
  assert with_empty.pop('num_left_out') == 1
  assert without.pop('num_left_out') == 0
  assert with_empty == without


def test_clients_without_training_examples_are_left_out():
  """Of five, one lacks tests, one training examples, one both."""
  scores = make_scores([5, 0, 9, 0, 1], [10, 0, 10, 0, 10])
  train_count = np.array([4, 2, 0, 0, 1])
  got = summary.accuracies(scores, train_count)
  np.testing.assert_array_equal(got, [50, np.nan, np.nan, np.nan, 10])
  got = summary.summarise(scores, train_count)
  assert (got['num_clients'], got['num_left_out']) == (2, 3)
  del got['num_left_out']
  want = summary.summarise(make_scores([5, 1], [10, 10]))
  del want['num_left_out']
  assert got == want


def test_without_any_tests_all_is_nan():
  got = summary.summarise(make_scores([0, 0], [0, 0]))
  assert math.isnan(got['mean']) and math.isnan(got['interval'][1])
  assert (got['num_clients'], got['num_left_out']) == (0, 2)


def test_interval_of_the_mean():
  # By the central limit theorem mean ± 1.96 std / sqrt(K); the bootstrap
  # differs by about 2% of the width for its number of resamples.
  rng = np.random.default_rng(3)
  correct = rng.binomial(1000, rng.uniform(0.3, 0.7, 400))
  got = summary.summarise(make_scores(correct, [1000] * 400))
  half = 1.96 * got['std'] / math.sqrt(400)
  want = [got['mean'] - half, got['mean'] + half]
  assert got['interval'] == pytest.approx(want, abs=0.15 * half)
  again = summary.summarise(make_scores(correct, [1000] * 400))
  assert again == got


def test_interval_of_equal_clients_is_a_point():
  got = summary.summarise(make_scores([7] * 9, [10] * 9))
  assert got['interval'] == pytest.approx([70, 70])
  assert got['std'] == 0


def test_interval_does_not_depend_on_the_order_of_clients():
  one = summary.summarise(make_scores([1, 2, 3, 9], [10] * 4))
  other = summary.summarise(make_scores([9, 1, 3, 2], [10] * 4))
  assert one == other


def test_many_clients_are_resampled_in_pieces():
  values = np.linspace(0, 100, 5000)
  low, high = summary.bootstrap_interval(values)
  assert 0 < 50 - low < 1.2 and 0 < high - 50 < 1.2

"""Summaries against arithmetic done by hand."""

import math

import numpy as np
import pytest

from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.choices import best_rounds
from fedjax_pfl.evaluation.measures import worst_decile
from fedjax_pfl.evaluation.summary import summarise


def make_scores(correct, count, **more):
  return Scores(np.array(correct), np.array(count), **more)


def test_three_unequal_clients_by_hand():
  # 50 %, 100 %, 30 %: mean 60, deviations -10, 40, -30, so the population
  # variance is 2600/3; pooled 5 + 2 + 30 of 10 + 2 + 100.
  got = summarise(make_scores([5, 2, 30], [10, 2, 100]))
  assert got['mean'] == pytest.approx(60)
  assert got['std'] == pytest.approx(math.sqrt(2600 / 3))
  assert got['pooled'] == pytest.approx(100 * 37 / 112)
  assert math.isnan(got['worst_decile'])  # two clients have few tests
  assert (got['num_clients'], got['num_left_out']) == (3, 0)


def test_worst_tenth_of_enough_tests():
  got = summarise(make_scores([25, 60, 0], [50, 100, 0]))
  assert got['worst_decile'] == 50  # ceil(0.2) = 1 client; one has no tests
  assert worst_decile(np.arange(11.0)[::-1], 50) == 0.5  # ceil(1.1) = 2
  assert math.isnan(summarise(make_scores([25, 60], [49, 100]))['worst_decile'])


def test_other_measures_by_hand():
  """Means over clients with examples; without measures that are None."""
  scores = make_scores(
    [5, 2, 0, 1],
    [10, 2, 0, 4],
    loss=np.array([1.0, 3.0, 9.0, 9.0]),
    top5=np.array([8.0, 2, 0, 4]),
    ece=np.array([0.1, 0.3, 9.0, 9.0], np.float32),
    own={
      'recall': np.array([np.nan, 0.5, 9.0, 1.0]),
      'rmse': np.array([np.nan, np.inf, 9.0, 1.0]),
    },
  )
  got = summarise(scores, np.array([1, 1, 1, 0]))
  assert got['top5'] == pytest.approx((80 + 100) / 2)
  assert scores.top5.tolist() == [8, 2, 0, 4]  # as they were given
  assert got['loss'] == pytest.approx(2)
  assert got['ece'] == pytest.approx(0.2)
  assert got['recall'] == 0.5 and summarise(scores)['recall'] == 0.75
  assert got['rmse'] == math.inf
  assert got['rmse_undefined'] == got['rmse_not_finite'] == 1
  assert 'mce' not in got
  empty = summarise(scores, np.zeros(4))
  assert math.isnan(empty['mean']) and empty['num_left_out'] == 4


@pytest.mark.parametrize('number', [400, 30_000])
def test_interval_of_the_mean(number):
  # By the central limit theorem mean ± 1.96 std / sqrt(K); the bootstrap
  # differs by about 2% of the width for its number of resamples.
  rng = np.random.default_rng(3)
  correct = rng.binomial(1000, rng.uniform(0.3, 0.7, number))
  got = summarise(make_scores(correct, [1000] * number))
  half = 1.96 * got['std'] / math.sqrt(number)
  want = [got['mean'] - half, got['mean'] + half]
  assert got['interval'] == pytest.approx(want, abs=0.15 * half)
  again = summarise(make_scores(correct[::-1], [1000] * number))
  for name, number in got.items():  # it does not depend on the order
    assert again[name] == number or math.isnan(number)


# ---- the best round by test accuracy

# Correct predictions of each of three clients in rounds 0 to 3.
ROUNDS = np.array([[0, 2, 3], [2, 0, 3], [1, 2, 3], [2, 1, 0]], 'i4')
COUNT = np.array([4, 4, 4])


@pytest.mark.parametrize(
  ('trains', 'number', 'each', 'together'),
  [
    # In total 5, 5, 6 and 3 predictions of each round are correct.
    ([1, 1, 1], 2, [2, 2, 3], [1, 2, 3]),
    ([1, 0, 1], 1, [2, 3], [2, 3]),  # 3, 5, 4 and 2 of those who train
    ([0, 1, 0], 0, [2], [2]),  # of equal ones the first
  ],
)
def test_the_best_round(trains, number, each, together):
  found = best_rounds(dict(enumerate(ROUNDS)), COUNT, np.array(trains))
  assert found['together']['round'] == number
  for name, correct in ('each', each), ('together', together):
    assert found[name]['mean'] == pytest.approx(25 * np.mean(correct))

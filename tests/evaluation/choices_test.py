"""The best round by test accuracy, by hand; of views: case superfed_eval."""

import numpy as np
import pytest

from fedjax_pfl.evaluation.choices import best_rounds
from fedjax_pfl.training.best_models import Kept, later_if_better

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


def test_of_equal_rounds_a_client_keeps_the_model_of_the_last():
  """Client i has model (r, 10 i) in round r."""
  best = Kept(np.full(3, -1.0), {'w': np.zeros((3, 2))})
  for number, correct in enumerate(ROUNDS):
    w = np.stack([np.full(3, float(number)), 10.0 * np.arange(3)], 1)
    best = later_if_better(best, Kept(correct, {'w': w}))
  assert best.correct.tolist() == [2, 2, 3]
  want = [[3, 0], [2, 10], [2, 20]]
  np.testing.assert_array_equal(best.models['w'], want)

"""Measures of who gains, by hand."""

import numpy as np
import pytest

from fedjax_pfl.evaluation import fairness

NAN = np.nan


def test_the_lowest_client_is_one_with_a_number():
  assert fairness.lowest_client(np.array([NAN, 3.0, 2.0, 2.0])) == (2.0, 2)
  accuracy, client = fairness.lowest_client(np.array([NAN]))
  assert np.isnan(accuracy) and client == -1


def test_negative_transfer_counts_clients_with_both_numbers():
  with_others = np.array([90.0, 50.0, NAN, 70.0, 60.0])
  alone = np.array([80.0, 60.0, 10.0, 70.0, NAN])
  assert fairness.negative_transfer(with_others, alone) == pytest.approx(1 / 3)
  assert np.isnan(fairness.negative_transfer(alone[4:], alone[4:]))


def test_rare_classes_are_counted_by_their_training_examples():
  train = [500, 101, 100, 20, 19, 0]
  labels = np.array([0, 0, 1, 2, 2, 3, 4, 4])
  predicted = np.array([0, 1, 1, 2, 0, 0, 4, 4])
  scores = fairness.class_scores(labels, predicted, 6)
  want = {'many': 75.0, 'medium': 25.0, 'few': 100.0}
  assert fairness.accuracy_by_shots(*scores, train) == want
  # Two clients with the same tests are the same accuracy.
  both = [np.stack([one, one]) for one in scores]
  assert fairness.accuracy_by_shots(*both, train) == want
  none = fairness.accuracy_by_shots(*scores, [500] * 6)
  assert np.isnan(none['few']) and np.isnan(none['medium'])

"""Own and other classes, with the arithmetic worked out."""

import math

import numpy as np
from helpers import client_of, make_data, pad

from fedjax_pfl.analysis.own_classes import (
  mean_over_clients,
  owned_classes,
  split_accuracy,
  summary,
)

NAN = np.nan


def test_owned_classes_are_those_of_real_examples():
  """Padding of any class owns nothing; a client without examples has none."""
  data = make_data()
  wide = [pad(data, 12, row) for row in range(5)]
  for padded in (data, *wide):
    owned = owned_classes(padded, 4)
    for i, count in enumerate(np.asarray(data.count)):
      one = client_of(data, i)
      own = set(np.asarray(one.y)[np.asarray(one.index)[:count]].tolist())
      assert set(np.flatnonzero(owned[i]).tolist()) == own
  assert not owned[2].any() and not owned[:, 3].any()


def test_accuracy_of_two_clients_by_hand():
  """Client 0 owns classes 0 and 2: (3 + 1) / (4 + 4), and 1 / 2 of class 1.

  Client 1 owns all: 100 (3 + 0 + 4) / (4 + 2 + 4), and nothing else.
  """
  correct = np.array([[3, 1, 1], [3, 0, 4]])
  split = split_accuracy(
    correct, np.array([4, 2, 4]), np.array([[1, 0, 1], [1, 1, 1]])
  )
  np.testing.assert_allclose(split.own, [50, 70])
  np.testing.assert_allclose(split.other, [50, NAN])


def test_what_has_no_number_is_left_out_and_counted():
  got = summary(np.array([20.0, NAN, 40, NAN, 60]))
  assert got['mean'] == 40 and got['std'] == np.std([20, 40, 60])
  assert (got['num_clients'], got['num_left_out']) == (3, 2)
  nothing = summary(np.array([NAN]))
  assert math.isnan(nothing['mean']) and nothing['num_left_out'] == 1


def test_mean_over_clients():
  rows = np.array([[10, NAN, NAN], [20, 5, NAN]])
  np.testing.assert_array_equal(mean_over_clients(rows), [15, 5, NAN])

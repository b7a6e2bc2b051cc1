"""A partition by a function of the user's own."""

import numpy as np
from fedjax_pfl.data.partition import partition

LABELS = np.arange(40) % 4
TESTS = np.arange(12) % 4
K = 4


def one_class(labels, num_clients, rng):
  """Give client k the rows of the class order[k]; drawn before any row."""
  order = rng.permutation(4)
  parts = [rng.permutation(np.flatnonzero(labels == c)) for c in order]
  labels[:] = 0  # it cannot change those of the caller
  return parts[:num_clients]


def divide(function, **settings):
  sizes = {'num_clients': K, 'num_classes': 4}
  return partition(function, LABELS, TESTS, **sizes, **settings)


def test_a_client_has_the_same_class_in_both_splits():
  for seed in (0, 1):
    train, test = divide(one_class, seed=seed)
    for rows, tests in zip(train, test, strict=True):
      assert set(LABELS[rows]) == set(TESTS[tests])
      assert len(rows) == 10 and len(tests) == 3 and rows.dtype == np.int64
  other, _ = divide(one_class, seed=0)
  assert any((a != b).any() for a, b in zip(train, other, strict=True))
  # Equal seeds give equal rows, and tests may be a part of training.
  kept, test = divide(one_class, test_partition='split', test_fraction=0.2)
  for own, tests, rows in zip(kept, test, other, strict=True):
    assert len(own) == 8 and set(own) | set(tests) == set(rows)


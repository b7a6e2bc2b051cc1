"""Small partitions by hand: what no seed decides, or is the user's own.

Rows that a seed decides: partition_test.py, the properties, golden cases.
"""

from functools import partial

import numpy as np
import pytest
from labels import shuffled_labels

from fedjax_pfl.data.partition import partition
from fedjax_pfl.data.partitions.shards import picked


def as_lists(indices):
  return [rows.tolist() for rows in indices]


def test_no_semantic_client_takes_the_last_rows_of_a_cluster():
  # Of 30 rows two clients take 10 each; the least, 10, are left over.
  labels, sizes = shuffled_labels(10, 3), {'num_clients': 2, 'num_classes': 3}
  how = {'min_client_size': 10, 'max_client_size': 11, 'class_clusters': 1}
  indices, _ = partition('semantic', labels, labels, **sizes, **how)
  assert [len(rows) for rows in indices] == [10, 10]


OWNERS = np.array([2, 0, 1, 0, 2, 2, 0, 1])
TESTS = np.array([1, 0, 1])  # client 2 has none
LABELS = np.arange(8) % 2, np.arange(3) % 2


def natural(clients=(OWNERS, TESTS), num_clients=3, **settings):
  return partition(
    'natural',
    *LABELS,
    num_clients=num_clients,
    num_classes=2,
    clients=clients,
    **settings,
  )


def test_a_natural_client_has_its_own_rows_in_their_order():
  train, test = natural()
  assert as_lists(train) == [[1, 3, 6], [2, 7], [0, 4, 5]]
  assert as_lists(test) == [[1], [0, 2], []]
  # Who holds a test does not matter where all have all.
  _, test = natural((OWNERS, TESTS + 7), test_partition='whole')
  assert as_lists(test) == [[0, 1, 2]] * 3


def one_class(labels, num_clients, rng):
  """Give client k the rows of the class order[k]; drawn before any row."""
  order = rng.permutation(4)
  parts = [rng.permutation(np.flatnonzero(labels == c)) for c in order]
  labels[:] = 0  # it cannot change those of the caller
  return parts[:num_clients]


def test_a_client_of_the_users_function_has_one_class_in_both_splits():
  labels, tests = np.arange(40) % 4, np.arange(12) % 4
  sizes = {'num_clients': 4, 'num_classes': 4}
  divide = partial(partition, one_class, labels, tests, **sizes)
  for seed in (0, 1):
    train, test = divide(seed=seed)
    for rows, held in zip(train, test, strict=True):
      assert set(labels[rows]) == set(tests[held])
      assert len(rows) == 10 and len(held) == 3 and rows.dtype == np.int64
  other, _ = divide(seed=0)
  assert any((a != b).any() for a, b in zip(train, other, strict=True))
  # Equal seeds give equal rows, and tests may be a part of training.
  kept, test = divide(test_partition='split', test_fraction=0.2)
  for own, held, rows in zip(kept, test, other, strict=True):
    assert len(own) == 8 and set(own) | set(held) == set(rows)


@pytest.mark.parametrize('size', [1, 2, 5, 13])
def test_things_are_taken_from_those_that_are_left(size):
  choices = np.random.default_rng(size).integers(np.arange(size, 0, -1))
  left = list(range(size))
  assert picked(choices).tolist() == [left.pop(at) for at in choices]

"""The rows of small partitions, worked out by hand."""

from functools import partial

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.data.partition import partition
from fedjax_pfl.data.partitions.dirichlet import deal_shares
from fedjax_pfl.data.partitions.shards import picked


def as_lists(indices):
  return [rows.tolist() for rows in indices]


def test_dirichlet_cuts_at_the_rounded_cumulative_proportions():
  # Class 0 has 5 rows: 0.3 and 0.8 of them are 1.5 and 4, cut at 2 and 4;
  # class 1 has 2: all for the last client, though its shares sum up to 0.9.
  labels = np.array([0, 1, 0, 0, 1, 0, 0])
  plan = np.array([[0.3, 0.5, 0.2], [0.0, 0.0, 0.9]])
  rng = np.random.default_rng(0)
  indices = deal_shares(plan, labels, rng)
  assert class_counts(labels, indices, 2).tolist() == [[2, 0], [2, 0], [1, 2]]
  check_partition(indices, 7)
  firsts = {tuple(deal_shares(plan, labels, rng)[0]) for _ in range(30)}
  assert len(firsts) > 5  # shuffled: not the same rows every time


def test_no_semantic_client_takes_the_last_rows_of_a_cluster():
  # Of 30 rows two clients take 10 each; the least, 10, are left over.
  labels, sizes = shuffled_labels(10, 3), {'num_clients': 2, 'num_classes': 3}
  how = {'min_client_size': 10, 'max_client_size': 11, 'class_clusters': 1}
  indices, _ = partition('semantic', labels, labels, **sizes, **how)
  assert [len(rows) for rows in indices] == [10, 10]


CIFAR = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)


@pytest.mark.parametrize(
  ('shards', 'step', 'train', 'test'),
  [
    # 5,000 / 20 = 250 and v = 60: 250 + 60 (g - 2.5); a fifth for testing.
    (2, 60, [160, 220, 280, 340], [32, 44, 56, 68]),
    # The smallest may get nothing.
    (2, 250 / 1.5, [0, 166, 332, 500], [0, 32, 66, 100]),
  ],
)
def test_unbalanced_sizes_grow_from_group_to_group(shards, step, train, test):
  indices = partition(
    'unbalanced',
    *CIFAR,
    num_clients=20,
    num_classes=10,
    shards_per_client=shards,
    group_size=5,
    size_step=step,
  )
  for labels, rows, want in zip(CIFAR, indices, (train, test), strict=True):
    assert [len(own) for own in rows] == np.repeat(want, 5).tolist()
    counts = class_counts(labels, rows)[5:]  # some have none before
    share = counts / counts.sum(1, keepdims=True)
    if train[0]:  # the first and the last client share their classes
      whole = class_counts(labels, rows)
      whole = whole / whole.sum(1, keepdims=True)
      np.testing.assert_allclose(whole, whole[::-1])
    assert (counts > 0).sum(1).max() <= shards
    assert len(np.unique(share, axis=0)) > 1


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

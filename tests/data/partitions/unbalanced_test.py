"""Clients of unequal sizes, a small and a large one with the same classes."""

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions.unbalanced import Plan, Unbalanced

CIFAR = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)


def divide(train=CIFAR[0], test=CIFAR[1], **settings):
  small = {
    'num_clients': 20,
    'shards_per_client': 2,
    'group_size': 5,
    'size_step': 60,
  }
  return partition(
    'unbalanced', train, test, num_classes=10, **{**small, **settings}
  )


def sizes_of(indices):
  return [len(rows) for rows in indices]


def test_sizes_grow_from_group_to_group():
  # 5,000 / 20 = 250 and v = 60: 250 + 60 (g - 2.5); a fifth for testing.
  train, test = divide()
  assert sizes_of(train) == [160] * 5 + [220] * 5 + [280] * 5 + [340] * 5
  assert sizes_of(test) == [32] * 5 + [44] * 5 + [56] * 5 + [68] * 5
  # Equal classes are used up exactly: no row twice, none left.
  check_partition(train, 5000)
  check_partition(test, 1000)


def test_sizes_are_rounded_down_to_whole_shards():
  train, test = divide(
    shards_per_client=10, size_step=50
  )  # 175, 225, ..; 35, 45, ..
  assert sizes_of(train)[::5] == [170, 220, 270, 320]
  assert sizes_of(test)[::5] == [30, 40, 50, 60]
  rows = np.concatenate(train)
  assert len(np.unique(rows)) == len(rows)


def test_the_first_and_the_last_client_share_their_classes():
  indices = divide(seed=4)
  for labels, rows in zip(CIFAR, indices, strict=True):
    counts = class_counts(labels, rows)
    share = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(share, share[::-1])
    assert (counts > 0).sum(1).max() <= 2
  assert len(np.unique(share, axis=0)) > 5


def test_a_class_that_does_not_suffice_by_hand():
  """Class 0 has 5 of the requested 8 + 2: 4 and 1. Class 1 has enough."""
  labels = np.array([0] * 5 + [1] * 15)
  plan = Plan(np.array([[0, 1], [1, 0]]), np.array([1.6, 0.4]))
  indices = Unbalanced(shards_per_client=2).deal(
    plan, labels, np.random.default_rng(0)
  )
  counts = class_counts(labels, indices, 2)
  assert counts.tolist() == [[4, 8], [1, 2]]
  assert len(np.unique(np.concatenate(indices))) == 15


def test_the_smallest_may_get_nothing():
  train, _ = divide(size_step=250 / 1.5)
  assert sizes_of(train)[:5] == [0] * 5 and sizes_of(train)[-1] == 500


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'num_clients': 15}, 'num_clients: got 15, .*Choices: 14, 16'),
    ({'group_size': 6}, 'divisor of the 20 clients. Choices: 1, 2, 4, 5, 10'),
    ({'group_size': 0}, 'group_size: got 0'),
    (
      {'size_step': 167},
      'from 0 to 166.667: the smallest clients have 250 - 1.5 x size_step',
    ),
    ({'size_step': -1}, 'size_step: got -1, expected from 0'),
    ({'group_size': 20, 'size_step': float('nan')}, 'size_step: got nan'),
    (
      {'num_clients': 4, 'group_size': 2, 'shards_per_client': 2},
      'multiple of 5: 2 pairs of clients x shards must be a multiple of 10',
    ),
    (
      {'shards_per_client': 1000, 'size_step': 0},
      'shards_per_client: got 1000, expected at most 250, the examples of the',
    ),
  ],
)
def test_sentences(changes, message):
  with pytest.raises(BadInput, match=message):
    divide(**changes)

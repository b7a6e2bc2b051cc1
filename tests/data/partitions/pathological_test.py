"""Blocks of one class each, in a fixed order."""

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition


def divide(train, test, **settings):
  small = {'num_clients': 100, 'num_classes': 10}
  return partition('pathological', train, test, **{**small, **settings})


def test_cifar10_is_five_pairs_of_classes():
  """The authors' rule: sort by label, cut, take the first of every class."""
  train, test = shuffled_labels(5000, 10), shuffled_labels(1000, 10, seed=1)
  indices = divide(train, test)
  for labels, rows in zip((train, test), indices, strict=True):
    check_partition(rows, len(labels))
    size = len(labels) // 200
    blocks = np.argsort(labels, kind='stable').reshape(10, 20, size)
    in_turn = blocks.swapaxes(0, 1).reshape(100, 2 * size)
    np.testing.assert_array_equal(np.stack(rows), in_turn)
  counts = class_counts(train, indices[0])
  for client in (0, 7, 99):
    first = 2 * (client % 5)
    assert counts[client, first : first + 2].tolist() == [250, 250]


def test_classes_of_unequal_sizes_have_blocks_of_unequal_sizes():
  labels = shuffled_labels([7, 4, 0, 9], 4)
  indices, _ = divide(
    labels, labels, num_clients=4, num_classes=4, shards_per_client=2
  )
  check_partition(indices, 20)
  counts = class_counts(labels, indices, 4)
  assert counts.tolist() == [
    [4, 2, 0, 0],
    [0, 0, 0, 5],
    [3, 2, 0, 0],
    [0, 0, 0, 4],
  ]


def test_numbers_that_do_not_divide_are_a_sentence():
  labels = shuffled_labels(50, 10)
  with pytest.raises(BadInput, match=r'got 3, .* multiple of 2: 15 clients'):
    divide(labels, labels, num_clients=15, shards_per_client=3)

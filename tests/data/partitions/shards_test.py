"""Blocks of one class: by hand, ragged, at the scale of EMNIST."""

import time

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions.shards import deal_blocks, shard_assignment


def first(client, position, left):
  del client, position, left
  return 0


def test_deal_blocks_by_hand():
  # Class 0 holds rows 0 1 2 4 6 in three blocks: rest 2, so the last two rows
  # go one each to the first blocks: (0, 4) (1, 6) (2).
  labels = np.array([0, 0, 0, 1, 0, 1, 0])
  assignment = np.array([[0, 1], [0, 0]])
  calls = []

  def last(client, position, left):
    calls.append((client, position, left))
    return left - 1

  indices = deal_blocks(labels, assignment, last)
  assert [rows.tolist() for rows in indices] == [[2, 3, 5], [1, 6, 0, 4]]
  assert calls == [(0, 0, 3), (0, 1, 1), (1, 0, 2), (1, 1, 1)]
  indices = deal_blocks(labels, assignment, first)
  assert [rows.tolist() for rows in indices] == [[0, 4, 3, 5], [1, 6, 2]]


def test_blocks_may_be_empty():
  labels = np.array([0, 1])
  indices = deal_blocks(labels, np.array([[0, 1], [0, 1], [1, 0]]), first)
  assert [rows.tolist() for rows in indices] == [[0, 1], [], []]
  check_partition(indices, 2)


def test_a_class_may_occur_twice_in_a_row():
  rows = shard_assignment(np.random.default_rng(0), 100, 5, 10)
  distinct = [len(set(row)) for row in rows]
  # 4.1 is the expectation that was simulated for this setting.
  assert min(distinct) < 5
  assert 3.9 < np.mean(distinct) < 4.3


def test_the_choices_of_the_shards_sentence_work():
  for num_clients, num_classes in ((100, 62), (20, 100), (6, 10), (7, 10)):
    with pytest.raises(BadInput) as caught:
      shard_assignment(np.random.default_rng(0), num_clients, 1, num_classes)
    words = str(caught.value).split('Choices: ')[1].split('.')[0].split(' (')[0]
    for choice in words.split(', '):
      rng = np.random.default_rng(0)
      shard_assignment(rng, num_clients, int(choice), num_classes)


def test_emnist_by_classes_is_ragged_and_fast():
  """1,488 clients, 62 classes of very unequal sizes, as many labels.

  Seconds of this process; measured: 0.2 for 6 shards, 1.0 for 60.
  """
  rng = np.random.default_rng(0)
  share = 1 / np.arange(2, 64)
  train, test = (
    rng.choice(62, size, p=share / share.sum()) for size in (697_932, 116_323)
  )
  began = time.process_time()
  clients, held_out = partition(
    'shards', train, test, num_clients=1488, num_classes=62, shards_per_client=6
  )
  assert time.process_time() - began < 5
  check_partition(clients, 697_932)
  check_partition(held_out, 116_323)
  blocks = np.bincount(train) / 144
  sizes = np.array([len(rows) for rows in clients])
  assert 6 * blocks.min() - 6 < sizes.min() < sizes.max() < 6 * blocks.max() + 6
  assert sizes.max() > 3 * sizes.min()
  assert max(len(np.unique(train[rows])) for rows in clients) <= 6


def pathological(train, test, **settings):
  small = {'num_clients': 100, 'num_classes': 10}
  return partition('pathological', train, test, **{**small, **settings})


def test_pathological_cifar10_is_five_pairs_of_classes():
  """The authors' rule: sort by label, cut, take the first of every class."""
  train, test = shuffled_labels(5000, 10), shuffled_labels(1000, 10, seed=1)
  indices = pathological(train, test)
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
  indices, _ = pathological(
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


def test_pathological_numbers_that_do_not_divide_are_a_sentence():
  labels = shuffled_labels(50, 10)
  with pytest.raises(BadInput, match=r'got 3, .* multiple of 2: 15 clients'):
    pathological(labels, labels, num_clients=15, shards_per_client=3)

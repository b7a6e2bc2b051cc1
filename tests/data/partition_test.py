import numpy as np
import pytest

from fedjax_pfl.data import (
  deal_blocks,
  fingerprint,
  iid,
  partition,
  shard_assignment,
  shards,
)
from fedjax_pfl.errors import BadInput


def check_partition(indices, size):
  """Disjoint, complete, and int64."""
  assert all(rows.dtype == np.int64 for rows in indices)
  np.testing.assert_array_equal(
    np.sort(np.concatenate(indices)), np.arange(size)
  )


def shuffled_labels(per_class, num_classes, seed=0):
  labels = np.repeat(np.arange(num_classes), per_class)
  return np.random.default_rng(seed).permutation(labels)


def first(client, position, left):
  del client, position, left
  return 0


def test_deal_blocks_by_hand():
  # Class 0 holds rows 0 1 2 4 6 in three blocks: rest 2, so the last two rows
  # go one each to the first blocks: (0, 4) (1, 6) (2).
  labels = np.array([0, 0, 0, 1, 0, 1, 0])
  assignment = np.array([[0, 1], [0, 0]])
  asked = []

  def last(client, position, left):
    asked.append((client, position, left))
    return left - 1

  indices = deal_blocks(labels, assignment, last)
  assert [rows.tolist() for rows in indices] == [[2, 3, 5], [1, 6, 0, 4]]
  assert asked == [(0, 0, 3), (0, 1, 1), (1, 0, 2), (1, 1, 1)]
  indices = deal_blocks(labels, assignment, first)
  assert [rows.tolist() for rows in indices] == [[0, 4, 3, 5], [1, 6, 2]]


def test_blocks_may_be_empty():
  labels = np.array([0, 1])
  indices = deal_blocks(labels, np.array([[0, 1], [0, 1], [1, 0]]), first)
  assert [rows.tolist() for rows in indices] == [[0, 1], [], []]
  check_partition(indices, 2)


@pytest.mark.parametrize(
  ('num_clients', 'num_shards'), [(20, 2), (20, 5), (5, 10), (50, 1), (7, 10)]
)
def test_shards_partition_ragged_classes(num_clients, num_shards):
  labels = np.random.default_rng(0).integers(0, 10, 997)
  rng = np.random.default_rng(1)
  assignment = shard_assignment(rng, num_clients, num_shards, 10)
  each = num_clients * num_shards // 10
  assert assignment.shape == (num_clients, num_shards)
  assert np.bincount(assignment.ravel()).tolist() == [each] * 10
  indices = shards(labels, assignment, rng)
  check_partition(indices, 997)
  sizes = np.bincount(labels)
  for row, rows in zip(assignment, indices, strict=True):
    times = np.bincount(row, minlength=10)
    own = np.bincount(labels[rows], minlength=10)
    assert (own >= times * (sizes // each)).all()
    assert (own <= times * -(-sizes // each)).all()


def test_a_class_may_occur_twice_in_a_row():
  rows = shard_assignment(np.random.default_rng(0), 100, 5, 10)
  distinct = [len(set(row)) for row in rows]
  # 4.1 is the expectation that was simulated for this setting.
  assert min(distinct) < 5
  assert 3.9 < np.mean(distinct) < 4.3


def test_train_and_test_share_their_classes():
  labels = shuffled_labels(50, 10), shuffled_labels(10, 10, seed=1)
  train, test = partition(
    'shards', *labels, num_clients=20, num_classes=10, shards=5, seed=3
  )
  check_partition(train, 500)
  check_partition(test, 100)
  for a, b in zip(train, test, strict=True):
    counts = np.bincount(labels[0][a], minlength=10)
    np.testing.assert_array_equal(
      counts, 5 * np.bincount(labels[1][b], minlength=10)
    )


def test_what_is_drawn_for_training_does_not_depend_on_the_test_set():
  train = shuffled_labels(50, 10)
  settings = {'num_clients': 20, 'num_classes': 10, 'shards': 5, 'seed': 3}
  one, _ = partition('shards', train, shuffled_labels(10, 10), **settings)
  two, _ = partition('shards', train, shuffled_labels(33, 10), **settings)
  assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize('name', ['shards', 'iid'])
def test_the_seed_decides(name):
  labels = shuffled_labels(20, 10)
  prints = [
    fingerprint(
      partition(
        name, labels, labels, num_clients=4, num_classes=10, shards=5, seed=s
      )[0]
    )
    for s in (0, 0, 1)
  ]
  assert prints[0] == prints[1] != prints[2]


def test_train_and_test_blocks_are_drawn_apart():
  labels = shuffled_labels(20, 10)
  train, test = partition(
    'shards', labels, labels, num_clients=10, num_classes=10, shards=5
  )
  assert fingerprint(train) != fingerprint(test)


def test_iid_takes_equal_shares_without_replacement():
  indices = iid(np.zeros(103), 10, np.random.default_rng(0))
  assert [len(rows) for rows in indices] == [10] * 10
  assert len(np.unique(np.concatenate(indices))) == 100
  check_partition(iid(np.zeros(40), 4, np.random.default_rng(0)), 40)


def test_fingerprint_is_stable_and_sees_order_and_borders():
  rows = [np.array([3, 1]), np.array([2])]
  assert fingerprint(rows) == '94c51cb4bcea'
  assert fingerprint([r.astype(np.int32) for r in rows]) == '94c51cb4bcea'
  others = [
    [np.array([1, 3]), np.array([2])],
    [np.array([3]), np.array([1, 2])],
    [np.array([2]), np.array([3, 1])],
  ]
  assert len({fingerprint(other) for other in (rows, *others)}) == 4


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('shard', {}, r'partition: got .*did you mean shards\?'),
    ('shards', {'num_clients': 0}, 'num_clients: got 0, expected from 1 to 50'),
    ('iid', {'num_clients': 51}, '100 for training, 50 for testing'),
    ('iid', {'num_classes': 9}, 'num_classes: got 9.*labels go from 0 to 9'),
    ('shards', {'shards': 0}, 'shards: got 0'),
    ('shards', {'shards': 7}, 'multiple of 5: 4 clients.*Choices: 5, 10, 15'),
    ('shards', {'shards': 3}, r'Choices: 5, 10 \(|Choices: 5, 10\.'),
  ],
)
def test_sentences(name, changes, message):
  settings = {'num_clients': 4, 'num_classes': 10, 'shards': 5} | changes
  labels = shuffled_labels(10, 10), shuffled_labels(5, 10)
  with pytest.raises(BadInput, match=message):
    partition(name, *labels, **settings)


def test_the_choices_of_the_shards_sentence_work():
  for num_clients, num_classes in ((100, 62), (20, 100), (6, 10), (7, 10)):
    with pytest.raises(BadInput) as caught:
      shard_assignment(np.random.default_rng(0), num_clients, 1, num_classes)
    words = str(caught.value).split('Choices: ')[1].split('.')[0].split(' (')[0]
    for choice in words.split(', '):
      rng = np.random.default_rng(0)
      shard_assignment(rng, num_clients, int(choice), num_classes)

"""k classes for every client, by lists that Python's `random` draws.

The golden cases compare the rows with those of the authors' code.
"""

import random

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import partition
from fedjax_pfl.data.partitions.classes import class_lists, hand_out


def divide(train, test, **settings):
  small = {'num_clients': 40, 'num_classes': 10, 'seed': 0}
  return partition('classes', train, test, **{**small, **settings})


def in_turn(num_clients, num_classes, num_own, seed):
  """Return the lists as the authors draw them; None: a class has no holder."""
  random.seed(seed)
  lists = []
  for client in range(num_clients):
    own = [client % num_classes]
    while len(own) < num_own:
      label = random.randint(0, num_classes - 1)
      if label not in own:
        own.append(label)
    lists.append(own)
  return (
    lists
    if len({label for own in lists for label in own}) == num_classes
    else None
  )


@pytest.mark.parametrize(
  ('num_own', 'holders'),
  [
    (2, [8, 7, 7, 6, 10, 7, 8, 8, 11, 8]),
    (3, [8, 13, 10, 10, 15, 11, 9, 14, 15, 15]),
  ],
)
def test_holders_of_the_paper(num_own, holders):
  """40 clients, ten classes, seed 0; training and testing have the same."""
  train, test = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)
  indices = divide(train, test, classes_per_client=num_own)
  for labels, rows in zip((train, test), indices, strict=True):
    check_partition(rows, len(labels))
    counts = class_counts(labels, rows)
    assert (counts > 0).sum(0).tolist() == holders
    # Equal shares of a class, but for one row.
    share = np.bincount(labels)[0] / np.array(holders)
    assert (np.abs(counts - share) < 1)[counts > 0].all()


def test_rows_are_handed_out_in_the_order_of_the_clients_by_hand():
  class Reverse:
    def shuffle(self, rows):
      rows[:] = rows[::-1].copy()

  labels = np.array([0, 1, 0, 1, 0, 1, 0])
  lists = np.array([[1, 0], [0, 1], [0, 2]])
  parts = hand_out(lists, labels, Reverse())
  assert [rows.tolist() for rows in parts] == [[6, 4, 5, 3], [2, 1], [0]]


def test_all_classes_for_everybody():
  labels = shuffled_labels(20, 10)
  train, _ = divide(labels, labels, num_clients=4, classes_per_client=10)
  assert (class_counts(labels, train) == 5).all()


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize(
  ('num_classes', 'num_own'), [(10, 2), (10, 4), (30, 3)]
)
def test_the_least_number_of_clients_is_told(num_classes, num_own, seed):
  works = [
    number
    for number in range(1, num_classes + 1)
    if in_turn(number, num_classes, num_own, seed)
  ]
  least = works[0]
  assert works == [*range(least, num_classes + 1)]
  message = (
    rf'num_clients: got {least - 1}, expected at least {least}: with seed '
    rf'{seed} and {num_own} of {num_classes} .* Choices: {least}'
  )
  for number in (1, least - 1):
    with pytest.raises(BadInput, match=f'expected at least {least}:'):
      class_lists(number, num_classes, num_own, seed)
  with pytest.raises(BadInput, match=message):
    class_lists(least - 1, num_classes, num_own, seed)
  got = class_lists(least, num_classes, num_own, seed)
  assert got.tolist() == in_turn(least, num_classes, num_own, seed)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'classes_per_client': 11}, 'classes_per_client: got 11, .*from 1 to 10'),
    ({'classes_per_client': 0}, 'classes_per_client: got 0'),
    ({'seed': 2**32}, 'seed: got 4294967296, expected from 0 to 4294967295'),
    (
      {'num_clients': 4},
      'at least 9: .*; of 4 none holds class 5 and 3 others. Choices: 9, 10',
    ),
  ],
)
def test_sentences(changes, message):
  labels = shuffled_labels(10, 10)
  with pytest.raises(BadInput, match=message):
    divide(labels, labels, **changes)

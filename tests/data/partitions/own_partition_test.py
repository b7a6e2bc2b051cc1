"""A partition by a function of the user's own."""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import partition

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


def test_equal_seeds_give_equal_rows_and_tests_may_be_a_part_of_training():
  train, test = divide(one_class, test_partition='split', test_fraction=0.2)
  again, _ = divide(one_class, test_partition='whole')
  assert [len(rows) for rows in train] == [8] * K
  for own, tests, all_rows in zip(train, test, again, strict=True):
    assert set(own) | set(tests) == set(all_rows)


REFUSED = {
  'twice': (lambda y, k, r: [[0, 1]] * k, 'gives row 0 a second time'),
  'repeated': (lambda y, k, r: [[3, 3], [1], [2], [0]], 'row 3 a second'),
  'outside': (
    lambda y, k, r: [[0], [1], [2], [40]],
    "with row 40', expected rows from 0 to 39",
  ),
  'below 0': (lambda y, k, r: [[0], [1], [2], [-1]], 'with row -1'),
  'empty': (lambda y, k, r: [[0], [], [2], [3]], 'client 1 without a training'),
  'fewer': (lambda y, k, r: [[0], [1]], "list, of 2', expected a list of"),
  'nothing': (lambda y, k, r: None, 'returns NoneType'),
  'floats': (lambda y, k, r: [[0.5]] * k, 'list for client 0'),
  'a mask': (lambda y, k, r: [y == c for c in range(k)], 'bool[40] for client'),
  'numbers': (lambda y, k, r: r.permutation(k), 'int64[] for client 0'),
  'a number': (lambda y, k, r: np.array(3), 'returns int64[]'),
  'unlike lists': (lambda y, k, r: [[[1, 2], [3]]] * k, 'list for client 0'),
  'no rows': (lambda y, k, r: [None] * k, 'NoneType for client 0'),
  'a table': (lambda y, k, r: [np.zeros((0, 2), int)] * k, 'int64[0, 2] for'),
  'an error': (lambda y, k, r: [1 / 0], 'own_partition_test.py, line '),
  'arguments': (lambda labels: [], 'TypeError'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_sentence_for(case):
  function, words = REFUSED[case]
  message = refused(divide, function)
  assert message.startswith('partition: got ') and words in message

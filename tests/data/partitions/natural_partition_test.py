import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data import partition

OWNERS = np.array([2, 0, 1, 0, 2, 2, 0, 1])
TESTS = np.array([1, 0, 1])  # client 2 has none
LABELS = np.arange(8) % 2, np.arange(3) % 2


def divide(clients=(OWNERS, TESTS), num_clients=3, labels=LABELS, **settings):
  return partition(
    'natural',
    *labels,
    num_clients=num_clients,
    num_classes=2,
    clients=clients,
    **settings,
  )


def as_lists(indices):
  return [rows.tolist() for rows in indices]


def test_a_client_has_its_own_rows_in_their_order():
  for seed in (0, 1):
    train, test = divide(seed=seed)
    assert as_lists(train) == [[1, 3, 6], [2, 7], [0, 4, 5]]
    assert as_lists(test) == [[1], [0, 2], []]


def test_tests_may_be_a_part_of_the_own_rows():
  nobody = OWNERS, np.array([], int)
  train, test = divide(
    nobody, labels=(LABELS[0], LABELS[1][:0]), test_partition='split'
  )
  parts = zip(train, test, strict=True)
  both = [sorted([*own, *held]) for own, held in parts]
  assert both == [[1, 3, 6], [2, 7], [0, 4, 5]]
  assert [len(rows) for rows in test] == [1, 1, 1]


def test_who_holds_a_test_does_not_matter_where_all_have_all():
  _, test = divide((OWNERS, TESTS + 7), test_partition='whole')
  assert as_lists(test) == [[0, 1, 2]] * 3


def test_a_data_set_without_clients_sentence():
  message = refused(lambda: divide(None))
  assert "got 'natural'" in message and 'dataset=npz' in message


@pytest.mark.parametrize('num_clients', [1, 2, 4, 100])
def test_another_number_of_clients_sentence(num_clients):
  message = refused(lambda: divide(num_clients=num_clients))
  assert message.startswith(f'num_clients: got {num_clients}, expected 3, ')


@pytest.mark.parametrize(
  ('owners', 'tests', 'client'),
  [
    (OWNERS + 1, TESTS, 0),
    (OWNERS * 2, TESTS, 1),
    (OWNERS, TESTS + 4, 3),
    (np.where(OWNERS == 2, 10**9, OWNERS), TESTS, 2),
  ],
)
def test_a_client_without_training_examples_sentence(owners, tests, client):
  message = refused(lambda: divide((owners, tests)))
  assert f'client {client} has no training example' in message
  assert 'return_inverse' in message


def test_no_test_examples_sentence():
  labels = LABELS[0], LABELS[1][:0]
  for name in ('same', 'whole', 'iid', 'independent'):
    message = refused(
      lambda name=name: divide(labels=labels, test_partition=name)
    )
    assert 'test_partition=split' in message

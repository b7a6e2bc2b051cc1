"""What the functions of data refuse, each in a sentence.

Of partitions, more is in partition_test.py; of files, beside their readers.
"""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data.client_data import from_arrays, stack_clients
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.held_out import hold_out
from fedjax_pfl.data.images import Synthetic
from fedjax_pfl.data.partition import partition
from fedjax_pfl.data.transforms import make_transforms

X, Y = np.zeros((10, 2, 2, 1), np.uint8), np.arange(10, dtype=np.int32)
NONE = np.zeros(10, int)
# Of 16, 4, 1, 0 and 2 examples.
HELD = [np.arange(20), np.arange(5), np.arange(1), np.arange(0), np.arange(2)]
LABELS, TESTS = np.arange(8) % 2, np.arange(4) % 2
OWNERS = np.array([2, 0, 1, 0, 2, 2, 0, 1]), np.array([1, 0, 1, 0])
ONE_CLASS = LABELS | (OWNERS[0] == 1)


def divide(name='iid', train=LABELS, test=TESTS, **settings):
  sizes = {'num_clients': 2, 'num_classes': 4, **settings}
  return partition(name, train, test, **sizes)


def natural(clients, number=3, **settings):
  return divide('natural', num_clients=number, clients=clients, **settings)


def by(function):
  return divide(function, num_clients=4)


def synthetic(*shape, **sizes):
  return load_dataset('synthetic', synthetic=Synthetic(*shape, **sizes))


def stacked(*indices):
  return stack_clients((X, Y), indices)


CASES = [
  # Image sets and their transforms.
  *(
    (lambda f=function: f('cifr10'), 'did you mean cifar10?')
    for function in (load_dataset, peek)
  ),
  (lambda: synthetic((16, 16)), 'three positive sizes'),
  (lambda: synthetic((16, 0, 1)), 'three positive sizes'),
  (lambda: synthetic(num_classes=1), 'num_classes: got 1'),
  (
    lambda: synthetic(num_classes=20, test_size=10),
    'classes of which both splits have images, from 2 to 10',
  ),
  (lambda: make_transforms('cifar', (32, 32, 3)), 'did you mean cifar10?'),
  (lambda: make_transforms('cifar10', (32, 32, 1)), 'width, 3) for cifar10'),
  (lambda: make_transforms('mnist', (9, 9, 1), 'unti'), 'did you mean unit?'),
  (lambda: make_transforms('mnist', (28, 28)), 'width, channels) for mnist'),
  # Clients.
  (stacked, "indices: got 'no client', expected for one client or more"),
  (lambda: stacked([0, 10]), "got 'rows from 0 to 10'"),
  (lambda: stacked([-1]), 'rows of the pool, 0 to 9'),
  (lambda: stacked([0], [0.5]), "got 'float64[1] for client 1'"),
  (lambda: from_arrays([], []), "xs, ys: got '0 and 0 clients"),
  (lambda: from_arrays([X], [Y[:9]]), "[['uint8[10, 2, 2, 1]'], ['int32[9]']]"),
  (lambda: from_arrays([X, X[:, 1:]], [NONE] * 2), "'uint8[10, 1, 2, 1]'"),
  (lambda: from_arrays([X], [np.zeros((10, 3), int)]), "['int64[10, 3]']"),
  (lambda: from_arrays([[X[0], X[0, 1:]]], [Y[:2]]), "[['object[]'], ['int32"),
  (lambda: from_arrays([3], [1]), "[['int64[]'], ['int64[]']]"),
  (
    lambda: hold_out(HELD, 0.8, 0),
    'takes all 2 training examples of client 4 (1 of 5 clients)',
  ),
  (
    lambda: hold_out(HELD[2:4], 0.1, 0),
    "validation_fraction: got '0.1 with clients of at most 1 training example",
  ),
  # Labels and tests of a partition.
  (lambda: divide(train=LABELS / 1), "train_labels: got 'float64[8]', exp"),
  (lambda: divide(test=TESTS[:0]), "test_partition: got 'same', expected"),
  (
    lambda: divide(test_partition='split', test_fraction=20),
    'test_fraction: got 20, expected a share of the training examples above',
  ),
  (
    lambda: divide(test_partition='independent', test_shards_per_client=7),
    'test_shards_per_client: got 7, expected a positive multiple of 2',
  ),
  (
    lambda: divide('shards', shards_per_client=2 * 10**7),
    'classes, all cut alike; 10000000 or fewer. Choices: 10000000 (did',
  ),
  # Clients of the data, and of the user's function.
  (lambda: natural(None), 'dataset=npz with an array `clients`'),
  (lambda: natural(OWNERS, 100), 'num_clients: got 100, expected 3, the'),
  (lambda: natural((OWNERS[0] + 1, OWNERS[1])), 'client 0 has no training'),
  (lambda: natural((OWNERS[0] / 2, OWNERS[1] * 0), 2), 'natural, and client'),
  # Without an array of all numbers below.
  (lambda: natural((OWNERS[0] + 2**30, OWNERS[1])), 'client 0 has no train'),
  (lambda: natural((OWNERS[0] - 1, OWNERS[1])), 'natural, with client -1'),
  (lambda: natural(tuple(o.astype(str) for o in OWNERS)), "clients: got '<U21"),
  (
    lambda: natural((OWNERS[0][1:], OWNERS[1])),
    'expected a pair: an owner for each of 8 training',
  ),
  (
    lambda: natural(OWNERS, 9, clients_per_domain=3),
    'clients_per_domain: got 3, expected at most 2',
  ),
  (
    lambda: natural(OWNERS, 6, train=ONE_CLASS, clients_per_domain=2),
    'domain 1 has training examples of one class, 1',
  ),
  (lambda: by(lambda y, k, r: [[0, 1]] * k), 'returns row 0 a second time'),
  (lambda: by(lambda y, k, r: [[0], [1], [2], [40]]), "40', expected a list"),
  (lambda: by(lambda y, k, r: [[0], [], [2], [3]]), 'client 1 without a'),
  (lambda: by(lambda y, k, r: [[0], [1]]), "list, of 2', expected a list of"),
  (lambda: by(lambda y, k, r: None), 'partition: got '),
  (lambda: divide(print, share=0.5), 'a function with share'),
  (lambda: by(lambda y, k, r: [1 / 0]), 'refused_data_test.py, line '),
]


@pytest.mark.parametrize(('call', 'words'), CASES)
def test_a_sentence(call, words):
  assert words in refused(call).replace("\\'", "'")


def test_of_a_domain_each_client_may_have_one_example():
  clients = natural(OWNERS, 6, clients_per_domain=2)[0]
  assert sorted(map(len, clients)) == [1, 1, 1, 1, 2, 2]

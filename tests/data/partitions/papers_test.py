"""Partitions of the papers, at their scale: sizes, classes, and how fast.

The golden cases compare rows with those of the authors' code.
"""

import numpy as np
import pytest
from labels import check_partition, class_counts, shuffled_labels

from fedjax_pfl.data.partition import partition

CIFAR = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)


def divide(name, labels=CIFAR, num_clients=20, num_classes=10, **settings):
  """Return the partition, and how many of each class a client has in both."""
  sizes = {'num_clients': num_clients, 'num_classes': num_classes}
  indices = partition(name, *labels, **sizes, **settings)
  both = zip(labels, indices, strict=True)
  return indices, *(class_counts(y, rows, num_classes) for y, rows in both)


def test_pathological_cifar10_is_five_pairs_of_classes():
  """The authors' rule: sort by label, cut, take the first of every class."""
  indices, counts, _ = divide(
    'pathological', num_clients=100, shards_per_client=2
  )
  for labels, rows in zip(CIFAR, indices, strict=True):
    size = len(labels) // 200
    blocks = np.argsort(labels, kind='stable').reshape(10, 20, size)
    in_turn = blocks.swapaxes(0, 1).reshape(100, 2 * size)
    np.testing.assert_array_equal(np.stack(rows), in_turn)
  for client in (0, 7, 99):
    first = 2 * (client % 5)
    assert counts[client, first : first + 2].tolist() == [25, 25]


def test_semantic_tiny_imagenet_is_ten_clusters_of_390_clients():
  labels = shuffled_labels(500, 200), shuffled_labels(50, 200)
  (train, test), *counts = divide(
    *('semantic', labels, 390, 200), class_clusters=10, max_client_size=400
  )
  sizes = np.array([len(rows) for rows in train])
  # The docstring of the authors: 251.98 and 87.56.
  assert sizes.mean() == pytest.approx(252, abs=3)
  assert sizes.std() == pytest.approx(87.6, rel=0.1)
  # Disjoint clusters of 20 classes: whoever shares one class shares all.
  owned = (counts[0] > 0) | (counts[1] > 0)
  together = (owned @ owned.T.astype(int)) > 0
  clusters = np.unique(together, axis=0)
  assert len(clusters) == 10 and (clusters.sum(0) == 1).all()
  assert ((clusters @ owned.astype(int) > 0).sum(1) == 20).all()
  assert sizes.sum() > 0.95 * 100_000
  # Testing: a tenth of the rows, and as large a share of them.
  few = np.array([len(rows) for rows in test])
  assert np.abs(few - sizes / 10).max() < 1


def test_merged_fashion_mnist_of_pfllib():
  """Sizes are those that TsingZ0/DBE publishes, dataset/fmnist-0.1."""
  y = np.arange(70_000) % 10
  rows, held_out = partition(
    *('dirichlet_capped', y[:60_000], y[60_000:]),
    **{'num_clients': 20, 'num_classes': 10, 'seed': 1},
    **{'test_partition': 'merged', 'test_fraction': 0.25},
    **{'dirichlet_beta': 0.1, 'dirichlet_min_size': 40},
  )
  both = [np.concatenate(own) for own in zip(rows, held_out, strict=True)]
  check_partition(both, 70_000)
  assert [len(own) for own in both[:6]] == [82, 320, 875, 2603, 1455, 5473]
  assert [len(own) for own in rows[:3]] == [61, 240, 656]
  assert class_counts(y, both, 10)[19].tolist() == [
    *(1, 491, 1876, 267, 1, 2060, 1, 0, 0, 1)
  ]

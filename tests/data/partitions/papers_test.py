"""Partitions of the papers, at their scale: sizes, classes, and how fast.

The golden cases compare rows with those of the authors' code.
"""

import numpy as np
import pytest
from labels import shuffled_labels

from fedjax_pfl.data.partition import partition


def class_counts(labels, indices, num_classes):
  """Return how many examples of each class a client has: [K, Y]."""
  return np.array(
    [np.bincount(labels[rows], minlength=num_classes) for rows in indices]
  )


def test_pathological_cifar10_takes_the_next_block_of_every_class_in_turn():
  """The authors' rule: sort by label, cut, take the first of every class."""
  labels = shuffled_labels(500, 10), shuffled_labels(100, 10, seed=1)
  sizes = {'num_clients': 100, 'num_classes': 10, 'shards_per_client': 2}
  both = partition('pathological', *labels, **sizes)
  for y, rows in zip(labels, both, strict=True):
    blocks = np.argsort(y, kind='stable').reshape(10, 20, -1)
    in_turn = blocks.swapaxes(0, 1).reshape(100, -1)
    np.testing.assert_array_equal(np.stack(rows), in_turn)


def test_semantic_tiny_imagenet_is_ten_clusters_of_390_clients():
  labels = shuffled_labels(500, 200), shuffled_labels(50, 200)
  sizes = {'num_clients': 390, 'num_classes': 200, 'max_client_size': 400}
  both = partition('semantic', *labels, **sizes, class_clusters=10)
  held = [class_counts(*own, 200) for own in zip(labels, both, strict=True)]
  train, test = both
  sizes = np.array([len(rows) for rows in train])
  # The docstring of the authors: 251.98 and 87.56.
  assert sizes.mean() == pytest.approx(252, abs=3)
  assert sizes.std() == pytest.approx(87.6, rel=0.1)
  # Disjoint clusters of 20 classes: whoever shares one class shares all.
  owned = (held[0] > 0) | (held[1] > 0)
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
  both = [np.concatenate(parts) for parts in zip(rows, held_out, strict=True)]
  assert (np.sort(np.concatenate(both)) == np.arange(70_000)).all()
  assert [len(client) for client in both[:6]] == [
    82,
    320,
    875,
    2603,
    1455,
    5473,
  ]
  assert [len(client) for client in rows[:3]] == [61, 240, 656]
  assert class_counts(y, both, 10)[19].tolist() == [
    *(1, 491, 1876, 267, 1, 2060, 1, 0, 0, 1)
  ]

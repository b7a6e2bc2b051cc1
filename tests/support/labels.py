"""What the tests of partitions share."""

import numpy as np


def check_partition(indices, size):
  """Disjoint, complete, and int64."""
  assert all(rows.dtype == np.int64 for rows in indices)
  np.testing.assert_array_equal(
    np.sort(np.concatenate(indices)), np.arange(size)
  )


def shuffled_labels(per_class, num_classes, seed=0):
  """Return labels in random order; per_class may be one number a class."""
  labels = np.repeat(np.arange(num_classes), per_class)
  return np.random.default_rng(seed).permutation(labels)


def class_counts(labels, indices, num_classes=10):
  """Return how many examples of each class a client has: [K, Y]."""
  return np.array(
    [np.bincount(labels[rows], minlength=num_classes) for rows in indices]
  )

"""What the tests of partitions share."""

import numpy as np


def shuffled_labels(per_class, num_classes, seed=0):
  """Return labels in random order; per_class may be one number a class."""
  labels = np.repeat(np.arange(num_classes), per_class)
  return np.random.default_rng(seed).permutation(labels)

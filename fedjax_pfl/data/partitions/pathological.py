"""Every client gets the next blocks of one class each; nothing is drawn.

  A[i, j] = (s i + j) mod Y

Blocks are those of `shards`, and a client takes the next one of each class. The
division of the SuPerFed paper: CIFAR-10, K = 100 and s = 2 are 5 disjoint pairs
of classes, each with 20 clients. It differs from the authors' code where
classes differ in size: there, blocks are of one size and straddle classes.
"""

import numpy as np

from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes
from fedjax_pfl.data.partitions.shards import Shards, check_shards, deal_blocks

SAME_CLIENTS = True


def pathological(
  sizes: Sizes, rng: Rng, *, shards_per_client: Shards = 10
) -> Deals:
  """Return how blocks are dealt in a fixed order; the seed changes nothing."""
  number, each = sizes.num_clients, shards_per_client
  check_shards(number, each, sizes.num_classes)
  deck = np.arange(number * each) % sizes.num_classes
  assignment = deck.reshape(number, each)  # [K, s]

  def deal(labels: np.ndarray, rng: Rng) -> Indices:
    return deal_blocks(labels, assignment, np.zeros_like)

  return deal, deal

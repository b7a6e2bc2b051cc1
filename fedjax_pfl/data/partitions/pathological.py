"""Every client gets s blocks of one class each; nothing is drawn.

  A[i, j] = (s i + j) mod Y        the class of the j-th block of client i

Every class, in the order of the data, is cut into q = s K / Y blocks, and its
blocks go to the clients in order (the SuPerFed paper: CIFAR-10, K = 100 and
s = 2 are 5 disjoint pairs of classes, each with 20 clients). Testing is
divided in the same way. The seed changes nothing.

Differs from the authors' code: where classes differ in size, so do blocks;
there, blocks are of one size and straddle classes.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.data.partitions import Indices, Sizes
from fedjax_pfl.data.partitions.shards import check_shards, deal_blocks


class Pathological(NamedTuple):
  """Blocks of one class each, in a fixed order."""

  shards_per_client: int = 2  # s

  def draw(self, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Return A [K, s]."""
    del rng
    num_clients, num_classes = sizes.num_clients, sizes.num_classes
    check_shards(
      num_clients,
      self.shards_per_client,
      num_classes,
      'shards_per_client',
      'clients',
    )
    deck = np.arange(num_clients * self.shards_per_client) % num_classes
    return deck.reshape(num_clients, self.shards_per_client)

  def deal(
    self, plan: np.ndarray, labels: np.ndarray, rng: np.random.Generator
  ) -> Indices:
    del rng
    return deal_blocks(labels, plan, lambda i, j, left: 0)

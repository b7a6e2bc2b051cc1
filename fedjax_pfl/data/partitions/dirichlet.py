"""Every class is divided among the clients in random proportions.

  p_c ~ Dir(beta 1_K)    for every class c

The shuffled rows of class c are cut at round(|c| cumsum(p_c)); the same p_c
cut the test set. The smaller beta, the more uneven; a client may get few rows,
or none. Every row is dealt exactly once. The generator of the FedBABU paper's
Table 18 is not public: this is the usual one, without a minimum size for which
the draw is repeated (dirichlet_capped.py has one).
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.rules import above
from fedjax_pfl.data.partitions import Indices, Rng, Sizes

# Sums of larger gamma variates overflow, and all p are 1 / K by then.
EQUAL = 1e12
BETA = above(
  0,
  '0 for "one class a client": a small number such as 0.01 does that',
  'a finite number above 0',
)


class Dirichlet(NamedTuple):
  """Random proportions of every class."""

  dirichlet_beta: float = 1.0

  def draw(self, sizes: Sizes, rng: Rng) -> np.ndarray:
    """Return p [Y, K]: the share of every class that a client gets."""
    BETA.check('dirichlet_beta', self.dirichlet_beta)
    alpha = np.full(sizes.num_clients, min(self.dirichlet_beta, EQUAL))
    return rng.dirichlet(alpha, size=sizes.num_classes)

  def deal(self, plan: np.ndarray, labels: np.ndarray, rng: Rng) -> Indices:
    return deal_shares(plan, labels, rng)


def deal_shares(shares: np.ndarray, labels: np.ndarray, rng: Rng) -> Indices:
  """Return the index vectors when p [Y, K] cut the rows of every class."""
  parts = []
  for label, own in enumerate(shares):
    rows = rng.permutation(np.flatnonzero(labels == label))
    # Without the last border: it is all rows, whatever p sums up to.
    borders = np.rint(len(rows) * np.cumsum(own)[:-1]).astype(int)
    parts.append(np.split(rows, borders))
  return [np.concatenate(own) for own in zip(*parts, strict=True)]

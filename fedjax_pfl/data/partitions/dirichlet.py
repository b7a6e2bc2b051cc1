"""Every class is divided among the clients in random proportions.

  p_c ~ Dir(beta 1_K)    for every class c

The shuffled rows of class c are cut at round(|c| cumsum(p_c)); the same p_c
cut the test set. A client may get no row. The generator of the FedBABU paper's
Table 18 is not public: this is the usual one.
"""

import functools
from typing import Annotated

import numpy as np

from fedjax_pfl.core.rules import above
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

# Sums of larger gamma variates overflow, and all p are 1 / K by then.
EQUAL = 1e12
Beta = Annotated[
  float,
  above(0, '0 for "one class a client": write 0.01'),
  'concentration; the smaller, the more uneven',
]


def dirichlet(sizes: Sizes, rng: Rng, *, dirichlet_beta: Beta = 1.0) -> Deals:
  """Return how rows are dealt: in random proportions of every class."""
  alpha = concentration(dirichlet_beta, sizes.num_clients)
  shares = rng.dirichlet(alpha, size=sizes.num_classes)  # [Y, K]
  deal = functools.partial(deal_shares, shares)
  return deal, deal


def concentration(beta: float, num_clients: int) -> np.ndarray:
  """Return beta 1_K."""
  return np.full(num_clients, min(beta, EQUAL))


def deal_shares(shares: np.ndarray, labels: np.ndarray, rng: Rng) -> Indices:
  """Return the index vectors when p [Y, K] cut the rows of every class."""
  parts = []
  for label, proportions in enumerate(shares):
    rows = rng.permutation(np.flatnonzero(labels == label))
    # Without the last border: it is all rows, whatever p sums up to.
    borders = np.rint(len(rows) * np.cumsum(proportions)[:-1]).astype(int)
    parts.append(np.split(rows, borders))
  return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]

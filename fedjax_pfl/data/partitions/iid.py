"""Every client gets equally many examples, any examples."""

import numpy as np

from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes


def iid(sizes: Sizes, rng: Rng) -> Deals:
  """Return how rows are dealt: floor(P / K) of them to every client."""
  del rng

  def deal(labels: np.ndarray, rng: Rng) -> Indices:
    return deal_equally(len(labels), sizes.num_clients, rng)

  return deal, deal


def deal_equally(size: int, num_clients: int, rng: Rng) -> Indices:
  """Return floor(P / K) rows for every client, drawn without replacement."""
  each = size // num_clients
  rows = rng.permutation(size)[: each * num_clients]
  return list(rows.reshape(num_clients, each))

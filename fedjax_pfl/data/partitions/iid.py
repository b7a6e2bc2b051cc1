"""Every client gets equally many examples, any examples."""

import functools

import numpy as np

from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

ANY_LABELS = True


def iid(sizes: Sizes, rng: Rng) -> Deals:
  """Return how rows are dealt: floor(P / K) of them to every client."""
  deal = functools.partial(deal_equally, sizes.num_clients)
  return deal, deal


def deal_equally(num_clients: int, labels: np.ndarray, rng: Rng) -> Indices:
  """Return floor(P / K) rows for every client, drawn without replacement."""
  each = len(labels) // num_clients
  rows = rng.permutation(len(labels))[: each * num_clients]
  return list(rows.reshape(num_clients, each))

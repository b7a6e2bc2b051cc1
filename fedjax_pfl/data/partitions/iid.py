"""Every client gets equally many examples, any examples."""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.data.partitions import Indices, Rng, Sizes


class Iid(NamedTuple):
  """floor(P / K) rows for every client, drawn without replacement."""

  def draw(self, sizes: Sizes, rng: Rng) -> int:
    del rng
    return sizes.num_clients

  def deal(self, plan: int, labels: np.ndarray, rng: Rng) -> Indices:
    return iid(labels, plan, rng)


def iid(labels: np.ndarray, num_clients: int, rng: Rng) -> Indices:
  """Return floor(P / K) rows for every client, drawn without replacement."""
  each = len(labels) // num_clients
  rows = rng.permutation(len(labels))[: each * num_clients]
  return list(rows.reshape(num_clients, each))

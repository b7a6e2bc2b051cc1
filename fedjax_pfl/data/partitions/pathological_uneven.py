"""A client has k classes, and a random part of each: PFLlib's pathological.

  class c goes to the first ceil(K k / Y) clients with fewer than k classes
  n = U{max(|c| / 10 m, b / Y) .. |c| / m - 1},  of m clients all but the last,
      who has the rest;  b = min(40, P / 2 K)

Rows of a class are cut in stored order. The rows are bit by bit those of
PFLlib's `separate_data` for the same seed of NumPy's legacy generator (its
scripts take 1), with both sets dealt as one (test_partition=merged). Tests, if
they are dealt, are cut by the resulting shares of training.
"""

import functools
import math

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes, legacy_rng
from fedjax_pfl.data.partitions.classes import Classes
from fedjax_pfl.data.partitions.dirichlet import deal_shares
from fedjax_pfl.data.partitions.shards import check_shards

BATCH = 40  # b: a batch of 10 for testing, of a quarter of a client's examples


def pathological_uneven(
  sizes: Sizes, rng: Rng, *, classes_per_client: Classes = 2
) -> Deals:
  """Return how rows are dealt: k classes a client, in random parts."""
  counts = draw_counts(sizes, classes_per_client)
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)

  def replay(labels: np.ndarray, rng: Rng) -> Indices:
    parts = [[] for _ in range(sizes.num_clients)]
    for label, held in enumerate(counts):
      rows = np.split(np.flatnonzero(labels == label), np.cumsum(held)[:-1])
      for client in np.flatnonzero(held):
        parts[client].append(rows[client])
    return [np.concatenate(pieces) for pieces in parts]

  return replay, functools.partial(deal_shares, shares)


def draw_counts(sizes: Sizes, each: int) -> np.ndarray:
  """Return the training examples of every class of every client, [Y, K]."""
  number, num_classes = sizes.num_clients, sizes.num_classes
  check_shards(number, each, num_classes, 'classes_per_client')
  legacy, left = legacy_rng(sizes.seed), np.full(number, each)
  least = int(min(BATCH, sizes.num_train / number / 2))
  counts = np.zeros((num_classes, number), int)
  for label, size in enumerate(sizes.class_counts):
    clients = np.flatnonzero(left)[: math.ceil(number / num_classes * each)]
    mean = size / len(clients)
    low = max(mean / 10, least / num_classes)
    if int(low) < 1 or int(low) >= int(mean):
      raise bad_input(
        'num_clients',
        got=f'{number}, of whom {len(clients)} share the {size} training '
        f'examples of class {label}',
        expected='at least 10 for each of them, and more than '
        f'{least / num_classes:g}',
      )
    drawn = legacy.randint(low, mean, len(clients) - 1)
    counts[label, clients] = [*drawn, size - drawn.sum()]
    left[clients] -= 1
  return counts

"""Keep a share of every client's training examples for choosing.

A round, a number of epochs or a hyperparameter that is chosen on these
examples has seen no test example.
"""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partitions import Indices

# The fifth child of the seed; partition.py has the four before it.
STREAM = 4


def hold_out(
  indices: Sequence[np.ndarray], fraction: float, seed: int
) -> tuple[Indices, Indices]:
  """Return the rows of every client for training, and those for validation.

    m_i = max(1, round(fraction n_i)),  half up,  for a client of n_i >= 2

  drawn at random, whatever their classes; both parts keep the order of the
  rows. A client with one example trains on it, and has none for validation.
  Refused are a share of all examples of a client, and clients of which none
  has two.

  >>> train, validation = hold_out([np.arange(10), np.arange(10, 11)], 0.2, 0)
  >>> [len(rows) for rows in train], [len(rows) for rows in validation]
  ([8, 1], [2, 0])
  """
  counts = np.array([len(rows) for rows in indices])  # [K]
  sizes = validation_sizes(counts, fraction)
  _check(counts, sizes, fraction)
  rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAM,)))
  train, validation = [], []
  for rows, size in zip(indices, sizes, strict=True):
    is_held = np.zeros(len(rows), bool)
    is_held[rng.permutation(len(rows))[:size]] = True
    train.append(rows[~is_held])
    validation.append(rows[is_held])
  return train, validation


def validation_sizes(counts: np.ndarray, fraction: float) -> np.ndarray:
  """Return how many of its examples each client keeps for validation: [K]."""
  rounded = np.floor(fraction * counts + 0.5).astype(int)
  return np.where(counts >= 2, np.maximum(rounded, 1), 0)


def _check(counts: np.ndarray, sizes: np.ndarray, fraction: float) -> None:
  """Refuse a share that leaves a client nothing to train on, or holds none."""
  emptied = (sizes > 0) & (sizes >= counts)
  if emptied.any():
    first = int(np.argmax(emptied))
    raise bad_input(
      'validation_fraction',
      got=f'{fraction}: it takes all {counts[first]} training examples of '
      f'client {first} ({emptied.sum():,} of {len(counts):,} clients)',
      expected='a share that leaves each client an example to train on',
      choices=['a smaller share, such as 0.1', 'fewer clients'],
      cause='the share for training in the place of that for validation, or '
      'very small clients',
    )
  if not sizes.any():
    raise bad_input(
      'validation_fraction',
      got=f'{fraction} with clients of at most {counts.max()} training example',
      expected='a client with at least two, to keep one of them',
      choices=['validation_fraction=0', 'fewer clients'],
      cause='more clients than the data can fill',
    )

"""What training does not see: halves of tests, examples and clients held out.

  halves         every other test of a client: to adapt on, and to evaluate on
  hold_out       a share of the training examples, for choosing
  order_clients  clients who come later, and take part in no round

What is chosen on held-out examples has seen no test. Each draw has a stream of
the seed that nothing else reads, so that other draws stay what they are.
"""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.partitions import Indices

# What a client adapts on: its training data, or half of its tests.
ADAPT_ON = ('train', 'test_half')
# Children of the seed; partition.py has the four before them.
EXAMPLES, CLIENTS = 4, 5


def halves(data: ClientData) -> tuple[ClientData, ClientData]:
  """Return every other example of every client [K, N], and the others.

  Alternating, because clients hold their examples sorted by class. With an odd
  number of examples the second result has one more.
  """
  width = data.index.shape[1]
  half = data.count // 2  # [K]
  return (
    data._replace(index=data.index[:, min(1, width - 1) :: 2], count=half),
    data._replace(index=data.index[:, ::2], count=data.count - half),
  )


def order_clients(num_clients: int, number: int, seed: int) -> np.ndarray:
  """Return all clients [K]: those who take part, then `number` drawn ones.

  Both in increasing order. The place in this order is a client's id from then
  on. They are drawn because partitions may order clients by size or by class.

  >>> order_clients(5, 2, seed=0).tolist()
  [0, 1, 3, 2, 4]
  """
  is_unseen = np.zeros(num_clients, bool)
  is_unseen[generator(seed, CLIENTS).permutation(num_clients)[:number]] = True
  return np.argsort(is_unseen, kind='stable')


def hold_out(
  indices: Sequence[np.ndarray], fraction: float, seed: int
) -> tuple[Indices, Indices]:
  """Return the rows of every client for training, and those for validation.

    m_i = max(1, round(fraction n_i)),  half up,  for a client of n_i >= 2

  drawn at random, whatever their classes; both parts keep the order of the
  rows. A client with one example trains on it. Refused are a share of all
  examples of a client, and clients of which none has two.

  >>> train, validation = hold_out([np.arange(10), np.arange(10, 11)], 0.2, 0)
  >>> [len(rows) for rows in train], [len(rows) for rows in validation]
  ([8, 1], [2, 0])
  """
  counts = np.array([len(rows) for rows in indices])  # [K]
  rounded = np.floor(fraction * counts + 0.5 + 1e-9).astype(int)
  sizes = np.where(counts >= 2, np.maximum(rounded, 1), 0)
  emptied = (sizes > 0) & (sizes >= counts)
  if emptied.any() or not sizes.any():
    got = f'{fraction} with clients of at most {counts.max()} training example'
    if emptied.any():
      got = (
        f'{fraction}: it takes all {counts[emptied][0]} training examples of '
        f'client {np.argmax(emptied)} ({emptied.sum():,} of {len(counts):,} '
        'clients)'
      )
    raise bad_input(
      'validation_fraction',
      got=got,
      expected='a share that leaves each client an example to train on, and '
      'a client with at least two',
      choices=['a smaller share, such as 0.1', '0: none', 'fewer clients'],
    )
  rng = generator(seed, EXAMPLES)
  train, validation = [], []
  for rows, size in zip(indices, sizes, strict=True):
    is_held = np.zeros(len(rows), bool)
    is_held[rng.permutation(len(rows))[:size]] = True
    train.append(rows[~is_held])
    validation.append(rows[is_held])
  return train, validation


def generator(seed: int, stream: int) -> np.random.Generator:
  """Return the random numbers of one stream of the seed."""
  sequence = np.random.SeedSequence(seed, spawn_key=(stream,))
  return np.random.default_rng(sequence)

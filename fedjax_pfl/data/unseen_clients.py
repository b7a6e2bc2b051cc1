"""Draw the clients who come later: they take no part in any round.

Partitions may order clients by size or by class, so which ones come later is
drawn, by a stream of the seed that nothing else reads: the partition, and what
each client holds, are those without such clients.
"""

import numpy as np

# The sixth child of the seed; partition.py and validation_split.py have others.
STREAM = 5


def order_clients(num_clients: int, number: int, seed: int) -> np.ndarray:
  """Return all clients [K]: those who take part, then `number` drawn ones.

  Both in increasing order. The place in this order is a client's id from then
  on: the clients who come later have the last ids.

  >>> order_clients(5, 2, seed=0).tolist()
  [0, 3, 4, 1, 2]
  """
  rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAM,)))
  is_unseen = np.zeros(num_clients, bool)
  is_unseen[rng.permutation(num_clients)[:number]] = True
  return np.argsort(is_unseen, kind='stable')

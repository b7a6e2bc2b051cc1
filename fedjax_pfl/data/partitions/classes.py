"""Every client holds k classes ('#C = k'; the FedConcat paper, NIID-Bench).

  L_i = {i mod Y}, then classes at random until k distinct ones   (client i)

The shuffled rows of class c are cut into as many equal parts as it has
holders, handed out in the order of the clients. So the size of a client
depends on how many share its classes. With k = Y nothing is drawn.

The lists and the rows for training are bit by bit those of the authors' code
(FedConcat's partition_data, that of NIID-Bench) for the same seed: Python's
`random` draws the lists, NumPy's legacy generator shuffles the rows. There, a
class without a client is a crash; here, BadInput.
"""

import functools
import random
from typing import Annotated

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import count, interval
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes, legacy_rng

Classes = Annotated[int, count('classes for each client'), '#C = k']


def classes(
  sizes: Sizes, rng: Rng, *, classes_per_client: Classes = 2
) -> Deals:
  """Return how rows are dealt: equally many classes for every client."""
  legacy_rng(sizes.seed)  # raises for a bad seed, before any draw
  lists = class_lists(
    sizes.num_clients, sizes.num_classes, classes_per_client, sizes.seed
  )

  def replay(labels: np.ndarray, rng: Rng) -> Indices:
    return _hand_out(lists, labels, legacy_rng(sizes.seed))

  return replay, functools.partial(_hand_out, lists)


def class_lists(
  num_clients: int, num_classes: int, each: int, seed: int
) -> np.ndarray:
  """Return L [K, k], in the order in which they were drawn."""
  interval(f'[1, {num_classes}]', 'the classes of another data set').check(
    'classes_per_client', each
  )
  if each == num_classes:
    return np.tile(np.arange(num_classes), (num_clients, 1))
  rng, lists = random.Random(int(seed)), []
  for client in range(num_clients):
    held = [client % num_classes]
    while len(held) < each:
      label = rng.randint(0, num_classes - 1)
      if label not in held:
        held.append(label)
    lists.append(held)
  if absent := set(range(num_classes)).difference(*lists):
    raise bad_input(
      'num_clients',
      got=num_clients,
      expected=f'clients that hold every class: with seed {seed} and {each} '
      f'of {num_classes} classes a client none holds class {min(absent)}',
      choices=[f'{num_classes}, which suffice with every seed'],
    )
  return np.array(lists)


def _hand_out(
  lists: np.ndarray, labels: np.ndarray, rng: Rng | np.random.RandomState
) -> Indices:
  """Return the index vectors: class by class, in increasing order."""
  parts: list[list[np.ndarray]] = [[] for _ in lists]
  for label in np.unique(lists):
    rows = np.flatnonzero(labels == label)
    rng.shuffle(rows)
    holders = np.flatnonzero((lists == label).any(1))
    pieces = np.array_split(rows, len(holders))
    for client, piece in zip(holders, pieces, strict=True):
      parts[client].append(piece)
  return [np.concatenate(pieces) for pieces in parts]

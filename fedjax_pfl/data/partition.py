"""Labels -> for every client the rows that are its own. Pure numpy.

A partition is two lists of index vectors, one vector a client: for training
and for testing. To add one, write a function like `_shards` and name it in
`PARTITIONS`.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedjax_pfl.data.images import digest
from fedjax_pfl.errors import bad_input

Indices = list[np.ndarray]  # one int64 vector for each client


def partition(
  name: str,
  train_labels: np.ndarray,
  test_labels: np.ndarray,
  *,
  num_clients: int,
  num_classes: int,
  shards: int = 0,
  seed: int = 0,
) -> tuple[Indices, Indices]:
  """Return (train, test) index vectors of every client.

  >>> labels = np.repeat(np.arange(10), 20)
  >>> train, test = partition('shards', labels, labels, num_clients=5,
  ...                         num_classes=10, shards=4)
  >>> [len(rows) for rows in train], len(np.unique(labels[train[0]])) <= 4
  ([40, 40, 40, 40, 40], True)

  The seed is split in three: what is drawn for the clients (their classes),
  for training and for testing are independent of each other.
  """
  if name not in PARTITIONS:
    raise bad_input(
      'partition',
      got=name,
      expected='a known way to divide the examples',
      choices=PARTITIONS,
      cause='a misspelt name',
    )
  labels = np.asarray(train_labels), np.asarray(test_labels)
  _check_labels(labels, num_clients, num_classes)
  rngs = [
    np.random.default_rng(child)
    for child in np.random.SeedSequence(seed).spawn(3)
  ]
  return PARTITIONS[name](labels, rngs, num_clients, num_classes, shards)


def shard_assignment(
  rng: np.random.Generator, num_clients: int, shards: int, num_classes: int
) -> np.ndarray:
  """Return A [N, s]: the classes of every client's shards.

  The multiset in which each of C classes occurs q = s N / C times, shuffled
  and laid out in rows. A class may occur twice in a row: a client has at most
  s distinct classes.
  """
  _check_shards(num_clients, shards, num_classes)
  each = shards * num_clients // num_classes  # q
  deck = rng.permutation(np.repeat(np.arange(num_classes), each))
  return deck.reshape(num_clients, shards)


def shards(
  labels: np.ndarray, assignment: np.ndarray, rng: np.random.Generator
) -> Indices:
  """Return the index vectors when blocks are dealt at random."""
  return deal_blocks(labels, assignment, lambda i, j, left: rng.integers(left))


def deal_blocks(
  labels: np.ndarray,
  assignment: np.ndarray,
  choose: Callable[[int, int, int], int],
) -> Indices:
  """Return the index vectors of the clients whose classes are assignment.

  Each class, in the order of the data, is cut into as many blocks as it
  occurs in the assignment. Client i takes for its j-th class block number
  choose(i, j, left) of the `left` blocks that remain of that class; its
  vector is the concatenation of its blocks, in the order of its row.
  """
  assignment = np.asarray(assignment)
  blocks = {
    label: cut(np.flatnonzero(labels == label), times)
    for label, times in zip(
      *np.unique(assignment, return_counts=True), strict=True
    )
  }
  return [
    np.concatenate(
      [
        blocks[label].pop(int(choose(i, j, len(blocks[label]))))
        for j, label in enumerate(row)
      ]
    )
    for i, row in enumerate(assignment)
  ]


def cut(rows: np.ndarray, num_blocks: int) -> Indices:
  """Return consecutive blocks; the r last rows go one each to the first r.

  With r = len(rows) mod num_blocks, so a block may be empty; int64 all the
  same.
  """
  rest = len(rows) % num_blocks
  body, tail = rows[: len(rows) - rest], rows[len(rows) - rest :]
  return [
    np.concatenate([block, tail[k : k + 1]])
    for k, block in enumerate(np.split(body, num_blocks))
  ]


def iid(
  labels: np.ndarray, num_clients: int, rng: np.random.Generator
) -> Indices:
  """Return floor(P / K) rows for every client, drawn without replacement."""
  each = len(labels) // num_clients
  rows = rng.permutation(len(labels))[: each * num_clients]
  return list(rows.reshape(num_clients, each))


def fingerprint(indices: Sequence[np.ndarray]) -> str:
  """Return 12 hexadecimal digits: equal for equal vectors in equal order."""
  counts = np.array([len(rows) for rows in indices], '<i8')
  return digest(counts, np.concatenate([*indices]).astype('<i8'))


def _shards(labels, rngs, num_clients, num_classes, num_shards):
  # One assignment for both: a client is tested on the classes it trains on.
  assignment = shard_assignment(rngs[0], num_clients, num_shards, num_classes)
  return tuple(
    shards(y, assignment, rng) for y, rng in zip(labels, rngs[1:], strict=True)
  )


def _iid(labels, rngs, num_clients, num_classes, num_shards):
  del num_classes, num_shards
  return tuple(
    iid(y, num_clients, rng) for y, rng in zip(labels, rngs[1:], strict=True)
  )


PARTITIONS = {'shards': _shards, 'iid': _iid}


def _check_labels(labels, num_clients: int, num_classes: int) -> None:
  least = min(map(len, labels))
  if not 1 <= num_clients <= least:
    raise bad_input(
      'num_clients',
      got=num_clients,
      expected=f'from 1 to {least}, so that each can have an example of both '
      f'splits ({len(labels[0])} for training, {len(labels[1])} for testing)',
      cause='a data set that was shrunk without lowering the clients',
    )
  low, high = min(y.min() for y in labels), max(y.max() for y in labels)
  if low < 0 or high >= num_classes:
    raise bad_input(
      'num_classes',
      got=num_classes,
      expected=f'more than the largest label; labels go from {low} to {high}',
      cause='the number of classes of another data set',
    )


def _check_shards(num_clients: int, num_shards: int, num_classes: int) -> None:
  # s N is a multiple of C exactly for the multiples of this step.
  step = num_classes // math.gcd(num_clients, num_classes)
  if num_shards >= 1 and num_shards % step == 0:
    return
  below = max(num_shards, 0) // step * step
  raise bad_input(
    'shards',
    got=num_shards,
    expected=f'a positive multiple of {step}: {num_clients} clients x shards '
    f'must be a multiple of {num_classes} classes, so that every class is cut '
    'into equally many',
    choices=[s for s in (below, below + step, below + 2 * step) if s],
    cause='a number of shards or clients chosen for another data set',
  )

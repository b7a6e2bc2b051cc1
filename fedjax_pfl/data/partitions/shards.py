"""Every client gets `shards_per_client` blocks of one class each.

  A [K, s] = the multiset with q = s K / Y of every class, shuffled, in rows

Every class, in the order of the data, is cut into q blocks; client i gets a
random one of them for each class in row A[i], where a class may stand twice.
Training and testing share A. Where classes differ in size, so do blocks and
clients.
"""

import functools
import math
from collections.abc import Callable
from typing import Annotated

import numpy as np

from fedjax_pfl.core.rules import Rule, count
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

MOST = 20_000_000  # shards of all clients; these take a minute, and gigabytes
Shards = Annotated[
  int, count('shards for each client'), 'blocks of one class each'
]


def shards(sizes: Sizes, rng: Rng, *, shards_per_client: Shards = 10) -> Deals:
  """Return how rows are dealt: at random."""
  assignment = shard_assignment(
    rng, sizes.num_clients, shards_per_client, sizes.num_classes
  )
  deal = functools.partial(deal_at_random, assignment)
  return deal, deal


def shard_assignment(
  rng: Rng, num_clients: int, shards: int, num_classes: int, **names: str
) -> np.ndarray:
  """Return A [K, s]: the classes of every client's shards."""
  check_shards(num_clients, shards, num_classes, **names)
  each = shards * num_clients // num_classes  # q
  deck = rng.permutation(np.repeat(np.arange(num_classes), each))
  return deck.reshape(num_clients, shards)


def deal_at_random(
  assignment: np.ndarray, labels: np.ndarray, rng: Rng
) -> Indices:
  """Return the index vectors when blocks are dealt at random."""
  return deal_blocks(labels, assignment, rng.integers)


def deal_blocks(
  labels: np.ndarray,
  assignment: np.ndarray,
  choose: Callable[[np.ndarray], np.ndarray],
) -> Indices:
  """Return the index vectors of the clients whose classes are assignment.

  A class is cut into as many blocks as it occurs there; the r rows that are
  left over go one each to its first r blocks. Client after client takes for
  each class block number choose(left) of the `left` blocks that remain [K s].
  """
  classes = assignment.ravel()
  order = np.argsort(classes, kind='stable')
  found, firsts, numbers = np.unique(
    classes[order], return_index=True, return_counts=True
  )
  left = np.empty(classes.size, int)
  left[order] = np.repeat(firsts + numbers, numbers) - np.arange(classes.size)
  choices = np.asarray(choose(left))
  takers, sizes, parts = np.split(order, firsts[1:]), np.empty_like(left), []
  for label, places in zip(found, takers, strict=True):
    rows, block = np.flatnonzero(labels == label), picked(choices[places])
    size, more = divmod(len(rows), len(places))
    sizes[places] = size + (block < more)
    parts.append((rows, block, size))
  ends = np.cumsum(sizes)
  dealt = np.empty(sizes.sum(), int)
  for places, (rows, block, size) in zip(takers, parts, strict=True):
    whole, first = size * len(places), (ends - sizes)[places]
    body = rows[:whole].reshape(len(places), size)
    dealt[first[:, None] + np.arange(size)] = body[block]
    longer = sizes[places] > size
    dealt[first[longer] + size] = rows[whole + block[longer]]
  return np.split(
    dealt, ends[assignment.shape[1] - 1 : -1 : assignment.shape[1]]
  )


def picked(choices: np.ndarray) -> np.ndarray:
  """Return which of n things are taken, one after the other.

  Choice t is a place among those that are left then. Halves of the choices are
  solved alone, and joined: beside the first half, sorted a_0 < a_1 < .., thing
  b of the second one is thing b + #{i: a_i - i <= b}.
  """
  width = 1 << max(len(choices) - 1, 0).bit_length()
  taken = np.pad(choices, (0, width - len(choices)), constant_values=width)
  taken = ordered = taken[:, None]
  while len(taken) > 1:
    half, apart = (
      taken.shape[1],
      3 * width * np.arange(len(taken) // 2)[:, None],
    )
    before, later = ordered[::2] - np.arange(half) + apart, taken[1::2]
    places = np.searchsorted(before.ravel(), (later + apart).ravel(), 'right')
    earlier = half * np.arange(len(later))[:, None]
    later = later + places.reshape(later.shape) - earlier
    taken = np.concatenate([taken[::2], later], 1)
    ordered = np.sort(taken, axis=1, kind='stable')
  return taken[0, : len(choices)]


def check_shards(
  num_rows: int,
  num_shards: int,
  num_classes: int,
  field: str = 'shards_per_client',
  who: str = 'clients',
) -> None:
  """Raise BadInput if classes would have different numbers of blocks."""
  # s K is a multiple of C exactly for the multiples of this step.
  step = num_classes // math.gcd(num_rows, num_classes)
  most = MOST // num_rows
  below = min(max(num_shards, 0), most) // step * step
  Rule(
    lambda value: 1 <= value <= most and value % step == 0,
    f'a positive multiple of {step}: {num_rows} {who} x shards must be a '
    f'multiple of {num_classes} classes, all cut alike; {most} or fewer',
    'a number of shards or clients chosen for another data set: this partition '
    f'needs a multiple of {num_classes} shards in all, partition=iid takes any '
    'num_clients',
    [s for s in (below, below + step, below + 2 * step) if 0 < s <= most],
  ).check(field, num_shards)

"""Every client gets `shards_per_client` blocks of one class each.

  shards         A [K, s] = the multiset with q = s K / Y of every class,
                 shuffled, in rows
  pathological   A[i, j] = (s i + j) mod Y;  nothing is drawn

Every class, in the order of the data, is cut into q blocks; client i gets one
of them for each class in row A[i], a random one or, if pathological, the next.
Training and testing share A. Where classes differ in size, so do blocks and
clients.

By shards, a class may stand twice in a row. Pathological is the division of the
SuPerFed paper: CIFAR-10, K = 100 and s = 2 are 5 disjoint pairs of classes,
each with 20 clients. It differs from the authors' code where classes differ in
size: there, blocks are of one size and straddle classes.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from fedjax_pfl.core.rules import Rule
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

MOST = 500_000  # shards of all clients: to deal more takes minutes


def shards(sizes: Sizes, rng: Rng, *, shards_per_client: int = 10) -> Deals:
  """Return how rows are dealt: blocks of one class each."""
  assignment = shard_assignment(
    rng, sizes.num_clients, shards_per_client, sizes.num_classes
  )
  deal = functools.partial(deal_at_random, assignment)
  return deal, deal


def pathological(
  sizes: Sizes, rng: Rng, *, shards_per_client: int = 2
) -> Deals:
  """Return how blocks are dealt in a fixed order; the seed changes nothing."""
  number, each = sizes.num_clients, shards_per_client
  check_shards(number, each, sizes.num_classes)
  deck = np.arange(number * each) % sizes.num_classes
  assignment = deck.reshape(number, each)  # [K, s]

  def deal(labels: np.ndarray, rng: Rng) -> Indices:
    return deal_blocks(labels, assignment, lambda left: 0)

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
  labels: np.ndarray, assignment: np.ndarray, choose: Callable[[int], int]
) -> Indices:
  """Return the index vectors of the clients whose classes are assignment.

  A class is cut into as many blocks as it occurs there. A client takes block
  number choose(left) of the `left` blocks that remain of a class.
  """
  blocks = {
    label: _cut(np.flatnonzero(labels == label), np.sum(assignment == label))
    for label in np.unique(assignment)
  }
  indices = []
  for row in assignment:
    left = [blocks[label] for label in row]
    taken = [rest.pop(choose(len(rest))) for rest in left]
    indices.append(np.concatenate(taken))
  return indices


def _cut(rows: np.ndarray, num_blocks: int) -> Indices:
  """Return consecutive blocks; the r last rows go one each to the first r."""
  body = len(rows) // num_blocks * num_blocks
  tail = np.array_split(rows[body:], num_blocks)
  blocks = np.split(rows[:body], num_blocks)
  return [np.concatenate(both) for both in zip(blocks, tail, strict=True)]


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

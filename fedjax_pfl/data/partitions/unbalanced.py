"""Clients of unequal sizes, with shards.

  n_i = P / K + v g - v mean(1 .. G)     for client i of group g = 1 .. G

Groups are `group_size` consecutive clients, G = K / group_size. Clients i and
K-1-i, a small and a large one, share the same s classes, and draw floor(n_i/s)
random rows of each, no row twice. v counts training examples; for the test
set it shrinks with the sizes.

With classes of equal size that uses every row, but for rounding. If a class has
fewer rows than its clients should get in total, each gets the same share of its
number.
"""

import functools
from typing import Annotated

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule, at_least, count
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes
from fedjax_pfl.data.partitions.shards import Shards, shard_assignment

ROUNDING = 1e-9  # n / s may come out as 4.9999999999
CAUSE = 'settings for other clients, or for fewer groups'


def unbalanced(
  sizes: Sizes,
  rng: Rng,
  *,
  shards_per_client: Shards = 10,  # s
  group_size: Annotated[
    int,
    count('clients of one size', 'groups were meant: num_clients / groups'),
    'clients of one size',
  ] = 10,
  size_step: Annotated[
    float, at_least(0), 'images from one group to the next'
  ] = 50.0,  # v
) -> Deals:
  """Return how rows are dealt: shards, in groups of growing sizes."""
  _check(sizes, group_size, size_step)
  number = sizes.num_clients
  half = shard_assignment(
    rng,
    number // 2,
    shards_per_client,
    sizes.num_classes,
    who='pairs of clients',
  )
  assignment = np.concatenate([half, half[::-1]])
  group = np.arange(number) // group_size
  mean = sizes.num_train / number
  relative = 1 + size_step * (group - group.mean()) / mean
  deal = functools.partial(deal_relative, assignment, relative)
  return deal, deal


def deal_relative(
  assignment: np.ndarray, relative: np.ndarray, labels: np.ndarray, rng: Rng
) -> Indices:
  """Return the index vectors of the clients with these classes [K, s].

  Their sizes are `relative` [K], K n_i / P: how large, 1 on average.
  """
  sizes = relative * len(labels) / len(relative)  # n_i
  each = np.floor(sizes / assignment.shape[1] + ROUNDING).astype(int)  # [K]
  if not each.any():
    raise bad_input(
      'shards_per_client',
      got=assignment.shape[1],
      expected=f'at most {int(sizes.max())}, the examples of the largest '
      'client: every client would get floor(n / shards) = 0',
    )
  requested = np.broadcast_to(each[:, None], assignment.shape)
  parts = np.empty(assignment.shape, object)
  for label in np.unique(assignment):
    is_label = assignment == label
    rows = rng.permutation(np.flatnonzero(labels == label))
    ends = np.cumsum(requested[is_label])
    # In integers: a class with enough rows is cut exactly as requested.
    ends = ends * min(len(rows), ends[-1]) // max(ends[-1], 1)
    pieces = np.split(rows, ends)[:-1]
    for shard, piece in zip(np.argwhere(is_label), pieces, strict=True):
      parts[tuple(shard)] = piece
  return [np.concatenate(shards) for shards in parts]


def _check(sizes: Sizes, group_size: int, size_step: float) -> None:
  """Refuse clients or groups of which not all have their place."""
  number, mean = sizes.num_clients, sizes.num_train / sizes.num_clients
  fits = [d for d in range(1, number + 1) if number % d == 0]
  steps = (number / group_size - 1) / 2  # to the smallest group
  most = mean / steps if steps > 0 else float('inf')
  Rule(
    lambda value: value % 2 == 0,
    'an even number: client i and the i-th last share classes',
    CAUSE,
    [number - 1, number + 1],
  ).check('num_clients', number)
  divisor = f'a divisor of the {number} clients'
  Rule(fits.__contains__, divisor, CAUSE, fits).check('group_size', group_size)
  Rule(
    lambda value: value <= most,
    f'from 0 to {most:g}: the smallest clients have {mean:g} - {steps:g} x '
    'size_step examples',
    CAUSE,
  ).check('size_step', size_step)

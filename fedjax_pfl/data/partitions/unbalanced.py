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

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule
from fedjax_pfl.data.partitions import Indices, Rng, Sizes
from fedjax_pfl.data.partitions.shards import shard_assignment

ROUNDING = 1e-9  # n / s may come out as 4.9999999999


class Plan(NamedTuple):
  """What the clients are."""

  assignment: np.ndarray  # [K, s] classes
  relative: np.ndarray  # [K] K n_i / P: how large, 1 on average


class Unbalanced(NamedTuple):
  """Groups of growing sizes, and shards."""

  shards_per_client: int = 10  # s
  group_size: int = 10  # clients of one size
  size_step: float = 50  # v: training examples from one group to the next

  def draw(self, sizes: Sizes, rng: Rng) -> Plan:
    self._check(sizes)
    num_clients = sizes.num_clients
    half = shard_assignment(
      rng,
      num_clients // 2,
      self.shards_per_client,
      sizes.num_classes,
      who='pairs of clients',
    )
    group = np.arange(num_clients) // self.group_size
    mean = sizes.num_train / num_clients
    relative = 1 + self.size_step * (group - group.mean()) / mean
    return Plan(np.concatenate([half, half[::-1]]), relative)

  def deal(self, plan: Plan, labels: np.ndarray, rng: Rng) -> Indices:
    sizes = plan.relative * len(labels) / len(plan.relative)  # n_i
    each = sizes / self.shards_per_client + ROUNDING
    each = np.floor(each).astype(int)  # [K]
    if not each.any():
      raise bad_input(
        'shards_per_client',
        got=self.shards_per_client,
        expected=f'at most {int(sizes.max())}, the examples of the largest '
        'client: every client would get floor(n / shards) = 0',
        cause='shards for larger clients, or too few examples',
      )
    requested = np.broadcast_to(each[:, None], plan.assignment.shape)
    parts = np.empty(plan.assignment.shape, object)
    for label in np.unique(plan.assignment):
      places = plan.assignment == label
      rows = rng.permutation(np.flatnonzero(labels == label))
      ends = np.cumsum(requested[places])
      # In integers: a class with enough rows is cut exactly as requested.
      ends = ends * min(len(rows), ends[-1]) // max(ends[-1], 1)
      pieces = np.split(rows, ends)[:-1]
      for place, piece in zip(np.argwhere(places), pieces, strict=True):
        parts[tuple(place)] = piece
    return [np.concatenate(own) for own in parts]

  def _check(self, sizes: Sizes) -> None:
    """Refuse clients or groups of which not all have their place."""
    number, mean = sizes.num_clients, sizes.num_train / sizes.num_clients
    fits = [d for d in range(1, number + 1) if number % d == 0]
    steps = (number / max(self.group_size, 1) - 1) / 2  # to the smallest group
    most = mean / steps if steps > 0 else float('inf')
    cause = 'settings for other clients, or for fewer groups'
    Rule(
      lambda value: value % 2 == 0,
      'an even number: client i and the i-th last share classes',
      cause,
      [number - 1, number + 1],
    ).check('num_clients', number)
    rules = {
      'group_size': Rule(
        lambda value: value in fits,
        f'a divisor of the {number} clients',
        cause,
        fits,
      ),
      'size_step': Rule(
        lambda value: 0 <= value <= most,
        f'from 0 to {most:g}: the smallest clients have {mean:g} - {steps:g} x '
        'size_step examples',
        cause,
      ),
    }
    for field, rule in rules.items():
      rule.check(field, getattr(self, field))

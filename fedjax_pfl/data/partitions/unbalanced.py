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

from fedjax_pfl.core.errors import BadInput, bad_input
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
    each = np.floor(sizes / self.shards_per_client + ROUNDING).astype(
      int
    )  # [K]
    if not each.any():
      raise _too_many_shards(
        self.shards_per_client, int(sizes.max()), len(labels)
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
    num_clients = sizes.num_clients
    if num_clients % 2:
      raise bad_input(
        'num_clients',
        got=num_clients,
        expected='an even number: client i and the i-th last share classes',
        choices=[num_clients - 1, num_clients + 1],
        cause='a number of clients that suits the partition "shards"',
      )
    fits = [d for d in range(1, num_clients + 1) if num_clients % d == 0]
    if self.group_size not in fits:
      raise bad_input(
        'group_size',
        got=self.group_size,
        expected=f'a divisor of the {num_clients} clients',
        choices=fits,
        cause='clients that were changed without the size of their groups',
      )
    steps = (num_clients // self.group_size - 1) / 2  # to the smallest group
    mean = sizes.num_train / num_clients
    most = mean / steps if steps else float('inf')
    if not 0 <= self.size_step <= most:
      raise bad_input(
        'size_step',
        got=self.size_step,
        expected=f'from 0 to {most:g}: the smallest clients have '
        f'{mean:g} - {steps:g} x size_step examples',
        cause='a step for larger clients, or for fewer groups',
      )


def _too_many_shards(num_shards: int, largest: int, num_rows: int) -> BadInput:
  return bad_input(
    'shards_per_client',
    got=num_shards,
    expected=f'at most {largest}, the examples of the largest client: with '
    f'{num_rows} examples every client would get floor(n / shards) = 0',
    cause='shards for larger clients, or too few examples',
  )

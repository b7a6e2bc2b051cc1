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

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.partitions import Indices, Rng, Sizes, legacy_generator


class Plan(NamedTuple):
  """What the clients are."""

  lists: np.ndarray  # [K, k] classes, as drawn
  seed: int


class Classes(NamedTuple):
  """Equally many classes for every client."""

  classes_per_client: int = 2  # k

  def draw(self, sizes: Sizes, rng: Rng) -> Plan:
    del rng
    legacy_generator(sizes.seed)  # raises for a bad seed, before any draw
    lists = class_lists(
      sizes.num_clients,
      sizes.num_classes,
      self.classes_per_client,
      sizes.seed,
    )
    return Plan(lists, sizes.seed)

  def replay(self, plan: Plan, labels: np.ndarray) -> Indices:
    return hand_out(plan.lists, labels, legacy_generator(plan.seed))

  def deal(self, plan: Plan, labels: np.ndarray, rng: Rng) -> Indices:
    return hand_out(plan.lists, labels, rng)


def class_lists(
  num_clients: int, num_classes: int, num_own: int, seed: int
) -> np.ndarray:
  """Return L [K, k], in the order in which they were drawn."""
  if not 1 <= num_own <= num_classes:
    raise bad_input(
      'classes_per_client',
      got=num_own,
      expected=f'from 1 to {num_classes}, all classes that there are',
      cause='the number of classes of another data set',
    )
  if num_own == num_classes:
    return np.tile(np.arange(num_classes), (num_clients, 1))
  stream = _draw_lists(num_classes, num_own, seed)
  lists = list(itertools.islice(stream, num_clients))
  if absent := set(range(num_classes)).difference(*lists):
    raise _no_holder(lists, absent, stream, num_classes, seed)
  return np.array(lists)


def hand_out(
  lists: np.ndarray,
  labels: np.ndarray,
  rng: Rng | np.random.RandomState,
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
  return [np.concatenate(own) for own in parts]


def _draw_lists(
  num_classes: int, num_own: int, seed: int
) -> Iterator[list[int]]:
  """Yield the list of one client after another, without end."""
  rng = random.Random(seed)
  for client in itertools.count():
    own = [client % num_classes]
    while len(own) < num_own:
      label = rng.randint(0, num_classes - 1)
      if label not in own:
        own.append(label)
    yield own


def _no_holder(
  lists: list[list[int]],
  absent: set[int],
  stream: Iterator[list[int]],
  num_classes: int,
  seed: int,
) -> BadInput:
  """Return the exception with the fewest clients that hold all classes.

  More clients begin with the same lists, so going on drawing finds the
  number; the Y-th client at the latest begins with the last class.
  """
  number, left = len(lists), set(absent)
  while left:
    left.difference_update(next(stream))
    number += 1
  return bad_input(
    'num_clients',
    got=len(lists),
    expected=f'at least {number}: with seed {seed} and {len(lists[0])} of '
    f'{num_classes} classes a client, {number} clients are the fewest that '
    f'hold every class; of {len(lists)} none holds class {min(absent)}'
    + (f' and {len(absent) - 1} others' if len(absent) > 1 else ''),
    choices=sorted({number, num_classes}),
    cause='clients chosen for a data set of fewer classes; as many clients as '
    'classes suffice with every seed',
  )

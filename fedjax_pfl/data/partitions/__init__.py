"""The partitions, one a file.

A partition is a function (sizes, rng, *, settings): it draws what the clients
are (their classes, their shares), and returns two functions (labels, rng) ->
the rows of every client, for the training set and for the test set, mostly the
same one. Where authors published code, the first one replays it, bit by bit,
with the random generators of that code and the plain seed.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.rules import Rule

Indices = list[np.ndarray]  # one int64 vector for each client
Rng = np.random.Generator
Deal = Callable[[np.ndarray, Rng], Indices]  # (labels [P], rng)
Deals = tuple[Deal, Deal]  # for training, and for testing
Owners = tuple[np.ndarray, np.ndarray]  # for training [P], and for testing


class Sizes(NamedTuple):
  """What a partition is drawn for; labels are passed to what it returns."""

  num_clients: int
  class_counts: np.ndarray  # [Y] training examples
  seed: int  # for the generators of published code; all else draws from `rng`
  owners: Owners | None = None  # who holds an example, if the data say it
  test_partition: str = 'same'

  @property
  def num_classes(self) -> int:
    return len(self.class_counts)

  @property
  def num_train(self) -> int:
    return int(self.class_counts.sum())


def legacy_rng(seed: int) -> np.random.RandomState:
  """Return NumPy's legacy generator, whose stream never changes."""
  Rule(
    lambda value: 0 <= value < 2**32,
    f'from 0 to {2**32 - 1}: the authors of this partition drew with '
    "NumPy's legacy generator, which takes no more",
    'a seed made from the time or from a hash',
  ).check('seed', seed)
  return np.random.RandomState(seed)

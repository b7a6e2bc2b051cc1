"""The partitions, one a file.

A partition is a frozen record of its settings, named like the fields of a
config, with two functions: `draw` returns a plan for the clients (their classes
or shares), and `deal` returns the rows of a split by that plan. One plan serves
training and testing, so that a client has the same classes in both.

A partition whose authors published code has a third, `replay`: the training
rows of that code, from its random generators; `deal` is then for testing only.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input

Indices = list[np.ndarray]  # one int64 vector for each client
Rng = np.random.Generator


class Sizes(NamedTuple):
  """The arguments of `draw`; rows are passed to `deal`."""

  num_clients: int
  class_counts: np.ndarray  # [Y] training examples
  seed: int  # for the generators of `replay`; all else draws from `rng`

  @property
  def num_classes(self) -> int:
    return len(self.class_counts)

  @property
  def num_train(self) -> int:
    return int(self.class_counts.sum())


def legacy_generator(seed: int) -> np.random.RandomState:
  """Return NumPy's legacy generator, whose stream never changes."""
  if not 0 <= seed < 2**32:
    raise bad_input(
      'seed',
      got=seed,
      expected=f'from 0 to {2**32 - 1}: the authors of this partition drew '
      "with NumPy's legacy generator, which takes no more",
      cause='a seed made from the time or from a hash',
    )
  return np.random.RandomState(seed)

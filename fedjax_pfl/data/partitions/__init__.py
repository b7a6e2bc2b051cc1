"""The ways to divide examples among clients, one a file.

A way is a frozen record of its settings, named like the fields of a config,
with two functions: `draw` what the clients are (their classes, their shares),
and `deal` them the rows of a split. What is drawn once serves training and
testing, so that a client is tested on what it trains for.

A way whose authors published a division for every seed has a third, `replay`:
it gives the training rows of that division, which their generators decide;
`deal` is then for testing alone.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input

Indices = list[np.ndarray]  # one int64 vector for each client


class Sizes(NamedTuple):
  """What `draw` is told: the rows themselves come with `deal`."""

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
  """Return NumPy's legacy generator, whose bits are frozen for ever."""
  if not 0 <= seed < 2**32:
    raise bad_input(
      'seed',
      got=seed,
      expected=f'from 0 to {2**32 - 1}: the authors of this partition drew '
      "with NumPy's legacy generator, which takes no more",
      cause='a seed made from the time or from a hash',
    )
  return np.random.RandomState(seed)

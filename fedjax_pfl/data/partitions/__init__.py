"""The ways to divide examples among clients, one a file.

A way is a frozen record of its settings, named like the fields of a config,
with two functions: `draw` what the clients are (their classes, their shares),
and `deal` them the rows of a split. What is drawn once serves training and
testing, so that a client is tested on what it trains for.
"""

from typing import NamedTuple

import numpy as np

Indices = list[np.ndarray]  # one int64 vector for each client


class Sizes(NamedTuple):
  """What `draw` is told: the rows themselves come with `deal`."""

  num_clients: int
  num_classes: int
  num_train: int  # training examples

"""A partition of the user's own: a function of labels.

  rows = function(labels [P], num_clients, rng),  a vector of rows a client

It is called for the training set, and for the tests with the same random
numbers: what it draws before it looks at rows, such as the classes of each
client, is the same in both. Some rows may be left out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.client_data import as_rows
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes

Divide = Callable[[np.ndarray, int, Rng], Sequence[np.ndarray]]
refuse = functools.partial(bad_input, 'partition')


def own(sizes: Sizes, rng: Rng, *, function: Divide) -> Deals:
  """Return how rows are dealt: as the function says, checked."""
  seed = int(rng.integers(2**63))  # of the random numbers of both splits

  def deal(labels: np.ndarray, rng: Rng) -> Indices:
    equal_rng = np.random.default_rng(seed)
    made = user_code.call(
      'partition',
      # A copy: a function may write into what it is given.
      lambda: function(labels.copy(), sizes.num_clients, equal_rng),
      of=function,
      cause='other arguments than (labels, num_clients, rng), or classes that '
      'one of the two splits has not got',
    )
    name = user_code.name_of(function)
    return _check_rows(name, made, sizes.num_clients, len(labels))

  def deal_some(labels: np.ndarray, rng: Rng) -> Indices:
    indices = deal(labels, rng)
    counts = [len(rows) for rows in indices]
    if 0 in counts:
      raise refuse(
        got=f'client {counts.index(0)} without a training example',
        expected='one or more for each client',
      )
    return indices

  return deal_some, deal


def _check_rows(name: str, made: Any, num_clients: int, size: int) -> Indices:
  """Return the rows as vectors; refuse other things, and rows given twice."""
  given = list(made) if np.iterable(made) else []
  indices, wrong = as_rows(given, size)
  if len(given) != num_clients:
    wrong = f'{user_code.describe(made)}, of {len(given)}'
  elif not wrong and (times := np.bincount(np.concatenate(indices))).any():
    wrong = f'row {times.argmax()} a second time' if times.max() > 1 else ''
  if wrong:
    raise refuse(
      got=f'{name} that returns {wrong}',
      expected=f'a list of {num_clients} vectors of rows, one for each client: '
      f'whole numbers from 0 to {size - 1}, since there are {size} labels, '
      'each once at most',
      cause='a mask (np.flatnonzero makes rows of it), the client of every '
      'row, rows drawn with replacement, or those of the training set for the '
      'tests: use len(labels)',
    )
  return indices

"""A partition of the user's own: a function of labels.

  rows = function(labels [P], num_clients, rng),  a vector of rows a client

It is called for the training set, and for the tests with the same random
numbers: what it draws before it looks at rows, such as the classes of each
client, is the same in both. Some rows may be left out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.partitions import Indices, Rng, Sizes

Divide = Callable[[np.ndarray, int, Rng], Sequence[np.ndarray]]
refuse = functools.partial(bad_input, 'partition')


class Plan(NamedTuple):
  num_clients: int
  seed: int  # of the random numbers of both splits


class Own(NamedTuple):
  """The division by a function of the user."""

  function: Divide

  def draw(self, sizes: Sizes, rng: Rng) -> Plan:
    return Plan(sizes.num_clients, int(rng.integers(2**63)))

  def deal(self, plan: Plan, labels: np.ndarray, rng: Rng) -> Indices:
    """Return the rows of every client, checked."""
    del rng
    # A copy: a function may write into what it is given.
    given = labels.copy(), plan.num_clients, np.random.default_rng(plan.seed)
    made = user_code.call(
      'partition',
      lambda: self.function(*given),
      of=self.function,
      cause='other arguments than (labels, num_clients, rng), or classes that '
      'one of the two splits has not got',
    )
    name = user_code.name_of(self.function)
    return _check_rows(name, made, plan.num_clients, len(labels))


def _check_rows(name: str, made: Any, num_clients: int, size: int) -> Indices:
  """Return the rows as vectors; refuse other things, and rows given twice."""
  given = list(made) if np.iterable(made) else []
  if len(given) != num_clients:
    raise refuse(
      got=f'{name} that returns {user_code.describe(made)}, of {len(given)}',
      expected=f'a list of {num_clients} vectors of rows, one for each client',
      cause='rows that were not divided',
    )
  indices = [_as_vector(rows) for rows in given]
  for client, rows in enumerate(indices):
    if rows is None:
      raise refuse(
        got=f'{name} with {user_code.describe(given[client])} for client '
        f'{client}',
        expected='a vector of whole numbers: rows of the examples',
        cause='a mask (np.flatnonzero makes rows of it), labels in the place '
        'of rows, or the client of every row',
      )
  dealt = np.concatenate(indices)
  outside = dealt[(dealt < 0) | (dealt >= size)]
  if len(outside):
    raise refuse(
      got=f'{name} with row {outside[0]}',
      expected=f'rows from 0 to {size - 1}: there are {size} labels',
      cause='the number of the training set, for the tests: use len(labels)',
    )
  times = np.bincount(dealt, minlength=1)
  if times.max() > 1:
    raise refuse(
      got=f'{name} that gives row {times.argmax()} a second time',
      expected='each row once at most',
      cause='rows that were drawn with replacement, or shares that overlap',
    )
  return indices


def _as_vector(given: Any) -> np.ndarray | None:
  """Return the rows of a client as int64 [n]; None of what are no rows."""
  try:
    rows = np.asarray(given)
  except ValueError:  # lists of unlike lengths
    return None
  is_vector = rows.ndim == 1 and (rows.dtype.kind in 'iu' or not rows.size)
  return rows.astype(np.int64) if is_vector else None

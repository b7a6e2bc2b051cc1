"""A partition of the user's own: a function of labels.

  rows = function(labels [P], num_clients, rng),  a vector of rows a client

It is called for the training set, and for the tests with the same random
numbers: what it draws before it looks at rows, such as the classes of each
client, is the same in both. Some rows may be left out.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.partitions import Indices, Rng, Sizes

Divide = Callable[[np.ndarray, int, Rng], Sequence[np.ndarray]]


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
    return _check_rows(self.function, made, plan.num_clients, len(labels))


def check_not_empty(indices: Indices) -> None:
  """Refuse a client without training examples."""
  for client, rows in enumerate(indices):
    if not len(rows):
      raise bad_input(
        'partition',
        got=f'client {client} without a training example',
        expected='one or more for each client',
        cause='more clients than the function divides among, or shares that '
        'were rounded to 0',
      )


def _check_rows(
  function: Divide, made: Any, num_clients: int, size: int
) -> Indices:
  """Return the rows as vectors; refuse other things, and rows given twice."""
  name = user_code.name_of(function)
  number = _length(made)
  if not isinstance(made, Sequence | np.ndarray) or number != num_clients:
    words = '' if number is None else f' of {number}'
    raise _refuse(
      f'{name} that returns {type(made).__name__}{words}',
      f'a list of {num_clients} vectors of rows, one for each client',
      'rows that were not divided, or a generator: return a list',
    )
  indices = [
    _check_vector(f'for client {client}', name, rows, size)
    for client, rows in enumerate(made)
  ]
  taken = np.zeros(size, bool)
  for client, rows in enumerate(indices):
    twice = rows[taken[rows]]
    if not len(twice):
      sizes = np.bincount(rows, minlength=1)
      twice = np.flatnonzero(sizes > 1)
    if len(twice):
      raise _refuse(
        f'{name} that gives row {twice[0]} to client {client} a second time',
        'each row once at most',
        'rows that were drawn with replacement, or shares that overlap',
      )
    taken[rows] = True
  return indices


def _length(made: Any) -> int | None:
  """Return the number of things in it; None of a number, or of an array []."""
  is_sized = hasattr(made, '__len__') and getattr(made, 'ndim', 1) > 0
  return len(made) if is_sized else None


def _check_vector(whose: str, name: str, given: Any, size: int) -> np.ndarray:
  """Return the rows of a client as int64 [n]; refuse what are no rows."""
  try:
    rows = np.asarray(given)
  except (TypeError, ValueError):  # lists of unlike lengths
    rows = np.array(None)
  is_whole = np.issubdtype(rows.dtype, np.integer) or not rows.size
  if rows.ndim != 1 or not is_whole:
    shown = user_code.describe(rows if rows.ndim else given)
    raise _refuse(
      f'{name} with {shown} {whose}',
      'a vector of whole numbers: rows of the examples',
      'a mask (np.flatnonzero makes rows of it), labels in the place of rows, '
      'the client of every row instead of the rows of every client, or lists '
      'inside a list',
    )
  if len(rows) and (rows.min() < 0 or rows.max() >= size):
    raise _refuse(
      f'{name} with rows from {rows.min()} to {rows.max()} {whose}',
      f'rows from 0 to {size - 1}: there are {size} labels',
      'the number of the training set, for the tests: use len(labels)',
    )
  return rows.astype(np.int64)


def _refuse(got: str, expected: str, cause: str) -> BadInput:
  return bad_input('partition', got=got, expected=expected, cause=cause)

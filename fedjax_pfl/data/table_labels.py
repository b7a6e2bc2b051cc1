"""The cells of a table's columns, and the labels among them.

classes  one column: whole numbers, or words
numbers  one column or more
bits     one column or more of 0 and 1
events   two columns: a time, 0 or later, and whether the event happened then
         (1), or the example was seen until then (0)
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import BITS, CLASSES, EVENTS
from fedjax_pfl.data.images import Table, natural_key

SHOWN = 40  # characters of a cell


class Columns(NamedTuple):
  """The cells of a file, by the names of their columns."""

  file: pathlib.Path
  cells: Mapping[str, Sequence[str]]

  @property
  def size(self) -> int:
    return len(next(iter(self.cells.values())))

  def check_name(self, field: str, name: str) -> None:
    """Refuse a column that is not there."""
    one_of(self.cells, f'a column of {self.file}').check(field, name)

  def refuse(
    self, name: str, row: int, expected: str, cause: str = ''
  ) -> BadInput:
    """Return the exception for a cell; the first row below the names is 1."""
    cell = self.cells[name][row][:SHOWN]
    return bad_input(
      'data_dir',
      got=f'{self.file} with {cell!r} in column {name}, row {row + 1}',
      expected=expected,
      cause=cause,
    )


class Labels(NamedTuple):
  """Labels, and what a model's outputs are."""

  y: np.ndarray  # [P] int32, or [P, M] float32
  num_outputs: int
  names: Sequence[str]  # of classes
  kinds: np.ndarray  # [P] or [P, M]: a client has two or more different ones
  bare: str  # what it has otherwise


def numbers_of(columns: Columns, name: str) -> np.ndarray | None:
  """Return a column as numbers [P], NaN for gaps; None for one of text.

  Refused are text among numbers, and what 32 bits do not hold.
  """
  cells = columns.cells[name]
  filled = [cell for cell in cells if cell]
  is_number = [*map(_is_number, filled)]
  if not any(is_number) and filled:
    return None
  if not all(is_number):
    text = filled[is_number.index(False)]
    raise columns.refuse(
      name,
      [*cells].index(text),
      f'numbers, as {sum(is_number):,} of {len(filled):,} cells are; a gap is '
      'an empty cell',
      'a word for a missing value, a unit, or a comma in a number',
    )
  values = np.array([cell or 'nan' for cell in cells]).astype(np.float64)
  with np.errstate(over='ignore'):
    too_large = np.isinf(values.astype(np.float32))
  if too_large.any():
    row = int(too_large.argmax())
    raise columns.refuse(name, row, 'finite numbers that 32 bits hold')
  return values


def _is_number(cell: str) -> bool:
  try:
    float(cell)
  except ValueError:
    return False
  return True


def read(columns: Columns, table: Table, is_test: np.ndarray) -> Labels:
  """Return the labels of every row, as the loss takes them."""
  read_kind = {CLASSES: _classes, BITS: _bits, EVENTS: _events}
  return read_kind.get(table.kind, _numbers)(columns, table.label, is_test)


def _classes(columns, names, is_test) -> Labels:
  _check_number(names, 1, 'a column of classes; or loss=logistic for bits')
  (name,) = names
  values = numbers_of(columns, name)
  key, cells = natural_key, columns.cells[name]
  if values is not None:
    wrong = values != np.floor(values)  # NaN, too
    if wrong.any():
      raise columns.refuse(
        name,
        int(wrong.argmax()),
        'whole numbers, or words: the classes of cross_entropy',
        'labels that are numbers: loss=squared; or a gap',
      )
    key, cells = int, [str(int(value)) for value in values]
  classes = sorted({*cells}, key=key)
  if '' in classes:
    raise columns.refuse(name, [*cells].index(''), 'the class of every row')
  number = {word: at for at, word in enumerate(classes)}
  y = np.array([number[cell] for cell in cells], np.int32)
  counts = np.bincount(y[~is_test], minlength=len(classes))
  if len(classes) < 2 or not counts.all():
    row = int(np.flatnonzero(y == counts.argmin())[0])
    raise columns.refuse(
      name, row, 'two classes or more, each with a training row'
    )
  return Labels(y, len(classes), classes, y, 'rows of one class')


def _numbers(columns, names, is_test) -> Labels:
  y = np.stack([_without_gaps(columns, name) for name in names], axis=1)
  for name, values in zip(names, y[~is_test].T, strict=True):
    if values.min() == values.max():
      expected = 'labels that vary among training rows'
      raise columns.refuse(name, int(is_test.argmin()), expected)
  y = y.astype(np.float32)
  return Labels(y, len(names), (), y[:, 0], 'labels that are all equal')


def _bits(columns, names, is_test) -> Labels:
  labels = _numbers(columns, names, is_test)
  for name, values in zip(names, labels.y.T, strict=True):
    _check_cells(columns, name, np.isin(values, (0, 1)), '0 or 1')
  return labels._replace(bare='rows of one class')


def _events(columns, names, is_test) -> Labels:
  _check_number(names, 2, 'the columns of time and event, in this order')
  labels = _numbers(columns, names, is_test)
  time, event = labels.y.T
  _check_cells(columns, names[0], time >= 0, 'a time, 0 or later')
  _check_cells(columns, names[1], np.isin(event, (0, 1)), '0 or 1')
  kinds = np.where(event, 1 + np.arange(len(event)), 0)  # events all differ
  return labels._replace(num_outputs=1, kinds=kinds, bare='no event')


def _without_gaps(columns: Columns, name: str) -> np.ndarray:
  """Return a column of numbers without a gap."""
  values = numbers_of(columns, name)
  if values is None:
    raise columns.refuse(name, 0, 'a number as label; words are classes')
  _check_cells(columns, name, ~np.isnan(values), 'a label in every row')
  return values


def _check_cells(
  columns: Columns, name: str, is_right: np.ndarray, expected: str
) -> None:
  """Refuse the first cell that is not right."""
  if not is_right.all():
    raise columns.refuse(name, int(is_right.argmin()), expected)


def _check_number(names: Sequence[str], number: int, expected: str) -> None:
  if len(names) != number:
    raise bad_input('label', got=','.join(names), expected=expected)

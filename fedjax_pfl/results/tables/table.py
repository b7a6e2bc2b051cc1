"""Tables of the page: the text of a cell, and the key it is sorted by."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.results.tables import text_table

NONE = '–'
UNITS = 'B', 'kB', 'MB', 'GB', 'TB'


class Cell(NamedTuple):
  text: str
  sort: float | str | None = None  # None: last in both directions
  below: tuple[str, ...] = ()  # smaller lines
  is_best: bool = False
  css: str = ''  # of the method whose colour precedes the text


class Column(NamedTuple):
  name: str
  hint: str = ''
  is_number: bool = True
  best: str = ''  # 'max' or 'min' is printed in bold
  digits: int = 2  # behind the point, as the cells are printed


METHOD = Column('Method', is_number=False)


class Table(NamedTuple):
  title: str
  columns: tuple[Column, ...]
  rows: list[list[Cell]]
  notes: tuple[str, ...] = ()


def table_of(
  title: str, rows: Sequence[Mapping[Column, Cell]], notes: Sequence[str] = ()
) -> Table | None:
  """Return the table of rows {column: cell}; None without a row.

  The best cell of a column, or several, are marked.
  """
  if not rows:
    return None
  columns, marked = tuple(rows[0]), [list(row.values()) for row in rows]
  for at, column in enumerate(columns):
    cells = [row[at] for row in marked if row[at].sort is not None]
    # Compared as they are printed: equal texts are equally good.
    if not column.best or len({cell.text for cell in cells}) < 2:
      continue
    values = [round(cell.sort, column.digits) for cell in cells]
    best = max(values) if column.best == 'max' else min(values)
    pairs = zip(cells, values, strict=True)
    words = {cell.text for cell, value in pairs if value == best}
    for row in marked:
      row[at] = row[at]._replace(is_best=row[at].text in words)
  return Table(title, columns, marked, tuple(notes))


def word(value: Any) -> Cell:
  """Return a value as text; a dash for None."""
  return Cell(NONE) if value is None else Cell(f'{value}', f'{value}')


def number(
  value: float | None, form: str = '{:.2f}', below: tuple = ()
) -> Cell:
  """Return a number in this format, or a dash for None and NaN."""
  value = value if isinstance(value, int | None) else float(value)
  if value is None or not math.isfinite(value):
    return Cell(NONE, None, below)
  return Cell(form.format(value), value, below)


def mean(values: np.ndarray, form: str = '{:.2f}') -> Cell:
  """Return the mean over seeds, [S]."""
  return number(np.mean(values), form)


def size(value: float) -> Cell:
  """Return bytes in a fitting unit: '18.1 MB'."""
  if not math.isfinite(value):
    return Cell(NONE)
  power = min(4, int(math.log10(max(value, 1)) / 3))
  digits = 0 if power == 0 else 1
  words = f'{value / 1000**power:.{digits}f} {UNITS[power]}'
  return Cell(words, float(value))


def duration(seconds: float) -> Cell:
  return Cell(text_table.duration(seconds), float(seconds))

"""Tables as records: what is written in a cell, and what it sorts by."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NONE = '–'


class Cell(NamedTuple):
  text: str
  sort: float | str | None = None  # None: last, whichever way
  below: tuple[str, ...] = ()  # smaller lines
  is_best: bool = False
  css: str = ''  # the method whose colour stands before the text


class Column(NamedTuple):
  name: str
  hint: str = ''
  is_number: bool = True
  best: str = ''  # 'max' or 'min': which number is set in bold


class Table(NamedTuple):
  title: str
  columns: tuple[Column, ...]
  rows: list[list[Cell]]
  notes: tuple[str, ...] = ()


def make_table(
  title: str,
  columns: Sequence[Column],
  rows: Sequence[Sequence[Cell]],
  notes: tuple[str, ...] = (),
) -> Table:
  """Return the table with the best of its columns marked; ties are shared."""
  marked = [list(row) for row in rows]
  for at, column in enumerate(columns):
    # As they are printed: what looks equal is equally good.
    values = [_rounded(row[at].sort) for row in rows]
    known = [value for value in values if value is not None]
    if not column.best or len(known) < 2:
      continue
    best = max(known) if column.best == 'max' else min(known)
    words = {
      row[at].text
      for row, value in zip(rows, values, strict=True)
      if value == best
    }
    for row, value in zip(marked, values, strict=True):
      is_best = value == best or row[at].text in words
      row[at] = row[at]._replace(is_best=is_best)
  return Table(title, tuple(columns), marked, notes)


def number(value: float, form: str = '{:.2f}', below: tuple = ()) -> Cell:
  """Return a number in this form, or a dash where there is none."""
  value = float(value)
  if not math.isfinite(value):
    return Cell(NONE, None, below)
  return Cell(form.format(value), value, below)


def mean(values: np.ndarray, form: str = '{:.2f}') -> Cell:
  """Return the mean over seeds, [S]."""
  return number(np.mean(values), form)


def size(value: float) -> Cell:
  """Return bytes in the unit that reads best: '18.1 MB'."""
  if not math.isfinite(value):
    return Cell(NONE)
  power = min(4, int(math.log10(max(value, 1)) / 3))
  unit = ('B', 'kB', 'MB', 'GB', 'TB')[power]
  scaled = value / 1000**power
  return Cell(f'{scaled:.{0 if power == 0 else 1}f} {unit}', float(value))


def duration(seconds: float) -> Cell:
  """Return a time in the two units that read best: '1 h 09 min'."""
  seconds = float(seconds)
  minutes = round(seconds / 60)
  if seconds < 120:
    words = f'{seconds:.0f} s'
  elif minutes < 120:
    words = f'{minutes} min'
  else:
    words = f'{minutes // 60} h {minutes % 60:02d} min'
  return Cell(words, seconds)


def _rounded(value: float | str | None) -> float | None:
  return round(value, 2) if isinstance(value, int | float) else None

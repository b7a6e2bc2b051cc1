"""Named rows of marks and intervals above one axis as SVG.

Colours come from a CSS class; see svg.py.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import svg

MOST_DOTS = 2000  # of more numbers, an even sample is drawn


class Mark(NamedTuple):
  """A number on a row, and the ends of the line through it."""

  value: float
  low: float = math.nan  # without two ends there is no line
  high: float = math.nan
  css: str = ''  # colour, where it is not that of the row
  kind: str = 'mark'  # filled, or 'hollow'
  marker: str = 'o'
  shift: float = 0.0  # downwards
  size: float = 5.0


class Row(NamedTuple):
  """A line of `plot_intervals`; without marks it is a heading."""

  label: str
  marks: Sequence[Mark] = ()
  words: Sequence[str] = ()  # at the right, a line each
  css: str = ''
  title: str = ''  # the tooltip
  dots: np.ndarray | None = None  # numbers drawn below the marks


def plot_intervals(
  rows: Sequence[Row],
  label: str,
  *,
  width: float = 560,
  margins: tuple[float, float] = (112, 58),
  height: float = 22,
  axis: Sequence[float] = (),
) -> Markup:
  """Draw a row for each name: its marks, their lines, and words beside them.

  The axis has these ticks, else it is one of differences around 0.
  """
  left, right = margins[0], width - margins[1]
  if axis:
    x, marks = svg.Scale(axis[0], axis[-1], left, right), axis
  else:
    ends = [mark[:3] for row in rows for mark in row.marks]
    clouds = [row.dots for row in rows if row.dots is not None]
    x, marks = svg.enclosing([[0.0], *ends, *clouds], left, right, 6)
  bottom = height * len(rows) + 6
  parts = svg.columns(x, marks, 0, bottom, differences=not axis)
  parts.append(svg.text(right, bottom + 38, label, 'end', 'label'))
  for place, row in enumerate(rows):
    parts.append(_row(x, height * place + height / 2 + 3, row))
  return svg.drawing(width, bottom + 44, label, *parts)


def _row(x: svg.Scale, y: float, row: Row) -> Markup:
  if not row.marks and not row.words:
    return svg.text(x.start, y + 4, row.label, 'name')
  parts = [svg.text(x.start - 12, y + 4, row.label, 'end')]
  if row.dots is not None:
    values = np.sort(row.dots[np.isfinite(row.dots)])
    places = np.linspace(0, values.size - 1, min(values.size, MOST_DOTS))
    values = values[places.astype(int)]
    parts.append(svg.cloud(x(values), y + 9, 22))
  for one in row.marks:
    if not math.isfinite(one.value):
      continue
    at, drawn = y + one.shift, []
    if math.isfinite(one.low) and math.isfinite(one.high):
      drawn.append(svg.line(x(one.low), at, x(one.high), at, 'link'))
    place = x(one.value), at, one.size
    drawn.append(svg.marker(one.marker, *place, one.kind))
    parts += [svg.tag('g', *drawn, class_=one.css)] if one.css else drawn
  for number, words in enumerate(row.words):
    parts.append(svg.text(x.end + 12, y + 4 + 15 * number, words))
  return svg.tag('g', *parts, class_=row.css or None, title=row.title)

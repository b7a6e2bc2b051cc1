"""Named rows above one axis as SVG: clients, levels, intervals.

Accuracies are in percent. Colours come from a CSS class; see svg.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import svg

WIDTH = 560  # in units of text that is 12 high
LEFT, RIGHT = 170, 58  # of charts whose rows have names
NAME, ROW, GAP = 24, 26, 14  # heights: of a name, a row, the gap below
MAX_DOTS = 150  # of more clients, the density is drawn
MOST_DOTS = 2000  # of more differences, an even sample is drawn
PERCENT = (0, 20, 40, 60, 80, 100)


class Change(NamedTuple):
  """Accuracies of the clients of a line before and after, [K]."""

  label: str
  css: str
  before: np.ndarray | None  # None for a method with one view
  after: np.ndarray

  @property
  def gains(self) -> np.ndarray:
    return self.after - self.before


class Levels(NamedTuple):
  """Numbers of a line before and after, by name."""

  label: str
  css: str
  pairs: Sequence[tuple[str, float, float]]  # before may be NaN


class Mark(NamedTuple):
  """A number on a row, and the ends of the line through it."""

  value: float
  low: float
  high: float
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


def plot_clients(rows: Sequence[Change]) -> Markup:
  """Draw every client as a dot; box: the middle half, bar: the mean."""
  groups = []
  for row in rows:
    sides = {'before': row.before, 'after': row.after}
    clouds = {
      kind: partial(_cloud, values=values, kind=kind)
      for kind, values in sides.items()
      if values is not None
    }
    groups.append((row.label, row.css, clouds))
  return _rows(groups, 'accuracy of a client, %')


def plot_levels(rows: Sequence[Levels]) -> Markup:
  """Draw numbers before (hollow) and after (filled)."""
  groups = []
  for row in rows:
    pairs = {
      name: partial(_dumbbell, before=before, after=after)
      for name, before, after in row.pairs
    }
    groups.append((row.label, row.css, pairs))
  return _rows(groups, 'accuracy, %')


def plot_intervals(
  rows: Sequence[Row],
  label: str,
  *,
  width: float = WIDTH,
  margins: tuple[float, float] = (112, RIGHT),
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
    y = height * place + height / 2 + 3
    parts.append(_interval(x, y, row, (left, right)))
  return svg.drawing(width, bottom + 44, label, *parts)


def _interval(
  x: svg.Scale, y: float, row: Row, ends: tuple[float, float]
) -> Markup:
  if not row.marks and not row.words:
    return svg.text(ends[0], y + 4, row.label, 'name')
  parts: list[Any] = [svg.tag('title', row.title)] if row.title else []
  parts.append(svg.text(ends[0] - 12, y + 4, row.label, 'end'))
  if row.dots is not None:
    values = np.sort(row.dots[np.isfinite(row.dots)])
    places = np.linspace(0, values.size - 1, min(values.size, MOST_DOTS))
    values = values[places.astype(int)]
    parts.append(svg.dots(x(values), y + 9 + _spread(values.size, 22), 4.4))
  for one in row.marks:
    if not math.isfinite(one.value):
      continue
    at, drawn = y + one.shift, []
    if math.isfinite(one.low) and math.isfinite(one.high):
      drawn.append(svg.line(x(one.low), at, x(one.high), at, 'link'))
    place = svg.marker(one.marker, x(one.value), at, one.size)
    drawn.append(svg.tag('path', d=place, class_=one.kind))
    parts += [svg.tag('g', *drawn, class_=one.css)] if one.css else drawn
  for number, words in enumerate(row.words):
    parts.append(svg.text(ends[1] + 12, y + 4 + 15 * number, words))
  return svg.tag('g', *parts, class_=row.css or None)


def _rows(
  groups: Sequence[tuple[str, str, Mapping[str, Callable]]], label: str
) -> Markup:
  """Draw named groups of rows above one axis from 0 to 100."""
  x = svg.Scale(0.0, 100.0, LEFT, WIDTH - RIGHT)
  parts: list[Any] = []
  y = 0
  for name, css, rows in groups:
    inner = [
      svg.tag('rect', x=0, y=y + 5, width=10, height=10, rx=2, class_='swatch'),
      svg.text(17, y + 15, name, 'name'),
    ]
    y += NAME
    for word, draw_fn in rows.items():
      inner.append(svg.text(17, y + ROW / 2 + 4, word))
      inner.append(draw_fn(x, y + ROW / 2))
      y += ROW
    y += GAP
    parts.append(svg.tag('g', *inner, class_=css))
  grid = svg.columns(x, PERCENT, 20, y)
  grid.append(svg.text(WIDTH - RIGHT, y + 40, label, 'end', 'label'))
  return svg.drawing(WIDTH, y + 46, label, *grid, *parts)


def _cloud(x: svg.Scale, y: float, values: np.ndarray, kind: str) -> Markup:
  """Draw clients on a row: dots or their density, a box and the mean."""
  values = np.sort(values[np.isfinite(values)])
  if not values.size:
    return svg.text(x(0) + 4, y + 4, 'no client')
  low, middle, high = np.percentile(values, [25, 50, 75])
  numbers = [values.mean(), middle, low, high, values[0], values[-1]]
  mean, median, first, last, least, most = map(svg.plain, numbers)
  words = (
    f'{values.size:,} clients {kind}: mean {mean}, median {median}, middle '
    f'half {first} to {last}, all {least} to {most}'
  )
  place = {'x': x(low), 'y': y - 7, 'width': max(x(high) - x(low), 1.0)}
  box = svg.tag('rect', **place, height=14, rx=2, class_='box')
  mean = svg.line(x(values.mean()), y - 9, x(values.mean()), y + 9, 'mean')
  if values.size > MAX_DOTS:
    counts, edges = np.histogram(values, bins=50, range=(0, 100))
    half = 11 * counts / counts.max()
    data = svg.shape(x((edges[1:] + edges[:-1]) / 2), y - half, y + half)
    points = svg.tag('path', d=data, class_='density')
  else:
    points = svg.dots(x(values), y + _spread(values.size, 18) - 9, 4.4)
  return svg.tag('g', svg.tag('title', words), points, box, mean, class_=kind)


def _spread(number: int, height: float) -> np.ndarray:
  """Return places [number] that keep dots of equal numbers apart."""
  return height * (np.arange(number) * 0.618 % 1)


def _dumbbell(x: svg.Scale, y: float, before: float, after: float) -> Markup:
  if not math.isfinite(after):
    return svg.text(x(0) + 4, y + 4, 'no client')
  sides = (-10, 'end'), (10, 'start')
  if before > after:
    sides = sides[::-1]
  ends = [(after, 'mark', sides[1], ('strong',))]
  parts = []
  if math.isfinite(before):
    parts.append(svg.line(x(before), y, x(after), y, 'link'))
    ends.insert(0, (before, 'hollow', sides[0], ()))
  for value, kind, (shift, side), weight in ends:
    parts.append(
      svg.tag('path', d=svg.marker('o', x(value), y, 5), class_=kind)
    )
    parts.append(
      svg.text(x(value) + shift, y + 4, svg.plain(value), side, *weight)
    )
  return svg.tag('g', *parts)

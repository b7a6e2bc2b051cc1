"""Named rows of numbers above one axis, and bars of gains, as SVG.

Accuracies are in percent. Colours come from a CSS class; see svg.py.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.charts import svg

WIDTH = 560  # in units of text that is 12 high
LEFT, RIGHT = 112, 58  # of rows with names, and with words behind them
ROW = 26  # height of a row of clients
PERCENT = (0, 20, 40, 60, 80, 100)
MAX_DOTS = 150  # of more clients, the density or one shape is drawn
CORNERS = 1000  # of that shape: more than a screen resolves
MOST_DOTS = 2000  # of intervals: of more numbers, an even sample is drawn
GAINS = 208, 60, 14  # height and margins of the chart of gains
MEANING = 'Dots: clients, of many their density. Box: middle half. Bar: mean.'


class Change(NamedTuple):
  """Accuracies of the clients of a line before and after, [K]."""

  label: str
  css: str
  before: np.ndarray | None  # None without a view before
  after: np.ndarray
  sign: int = 1  # -1 where lower is better

  @property
  def gains(self) -> np.ndarray:
    return self.sign * (self.after - self.before)


def plot_clients(
  lines: Sequence[Change],
  what: str = 'accuracy of a client, %',
  axis: Sequence[float] = PERCENT,
) -> Markup:
  """Draw every client as a dot; box: the middle half, bar: the mean."""
  rows = []
  for line in lines:
    rows.append(Row(line.label, css=line.css))
    for kind, clients in (('before', line.before), ('after', line.after)):
      if clients is not None:
        rows.append(Row(kind, css=line.css, clients=clients))
  return plot_intervals(rows, what, height=ROW, axis=axis)


def ends_of(changes: Sequence[Change]) -> tuple[float, float]:
  """Return the ends of the axis that the charts of these changes share."""
  gains = np.concatenate([change.gains for change in changes])
  gains = gains[np.isfinite(gains)]
  return gains.min(initial=0.0), gains.max(initial=0.0)


def plot_gains(
  change: Change,
  name_of: Callable[[int], str],
  ends: tuple[float, float],
  measure: Measure = ACCURACY,
) -> Markup:
  """Draw every client's gain, the largest first; `ends` are of the axis."""
  chart_height, left, right = GAINS
  gains = change.gains
  order = np.argsort(-gains, kind='stable')
  order = order[np.isfinite(gains[order])]
  marks = svg.ticks(*ends, 4)
  y = svg.Scale(marks[0], marks[-1], chart_height - 10, 34)
  x = svg.Scale(0, max(len(order), 1), left, WIDTH - right)
  label = ', '.join(filter(None, ['gain', measure.unit_of_gap]))
  parts = [svg.text(0, 13, label, 'label')]
  parts += svg.levels(y, marks, left, WIDTH - right, signed=True)
  if len(order) > MAX_DOTS:  # one shape
    places = np.unique(np.linspace(0, len(order) - 1, CORNERS).astype(int))
    across = x([places[0], *(places + 0.5), len(order)])
    data = svg.path_through(across, [y(0), *y(gains[order[places]]), y(0)])
    title = f'{len(order):,} clients'
    parts.append(svg.tag('path', title=title, d=f'{data}z', class_='bar'))
    order = order[:0]
  width = x(1) - x(0) - min(1.5, 0.2 * (x(1) - x(0)))
  for rank, at in enumerate(order):
    both = map(measure.short, (change.before[at], change.after[at]))
    gain = measure.signed(gains[at], short=True)
    title = f'{name_of(at)}: {" to ".join(both)} ({gain})'
    top, height = min(y(0), y(gains[at])), max(abs(y(gains[at]) - y(0)), 0.5)
    box = {'x': x(rank), 'y': top, 'width': width, 'height': height}
    kind = 'bar' if gains[at] >= 0 else 'bar lost'
    parts.append(svg.tag('rect', title=title, **box, class_=kind))
  label = f'{change.label}: gain of every client'
  chart = svg.tag('g', *parts, class_=change.css)
  return svg.drawing(WIDTH, chart_height, label, chart)


def _cloud(x: svg.Scale, y: float, kind: str, values: np.ndarray) -> Markup:
  """Draw clients on a row: dots or their density, a box and the mean."""
  values = np.sort(values[np.isfinite(values)])
  if not values.size:
    return svg.text(x(0) + 4, y + 4, 'no client')
  low, middle, high = np.percentile(values, [25, 50, 75])
  numbers = values.mean(), middle, low, high, values[0], values[-1]
  mean, median, first, last, least, most = map(svg.plain, numbers)
  title = (
    f'{values.size:,} clients {kind}: mean {mean}, median {median}, middle '
    f'half {first} to {last}, all {least} to {most}'
  )
  frame = {'x': x(low), 'y': y - 7, 'width': max(x(high) - x(low), 1.0)}
  box = svg.tag('rect', **frame, height=14, rx=2, class_='box')
  mean = svg.line(x(values.mean()), y - 9, x(values.mean()), y + 9, 'mean')
  if values.size > MAX_DOTS:
    counts, edges = np.histogram(values, bins=50, range=(x.low, x.high))
    half = 11 * counts / counts.max()
    data = svg.shape(x((edges[1:] + edges[:-1]) / 2), y - half, y + half)
    points = svg.tag('path', d=data, class_='density')
  else:
    points = svg.cloud(x(values), y - 9, 18)
  return svg.tag('g', points, box, mean, class_=kind, title=title)


# ---- marks and intervals


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
  """A line of `plot_intervals`; with its label alone it is a heading."""

  label: str
  marks: Sequence[Mark] = ()
  words: Sequence[str] = ()  # at the right, a line each
  css: str = ''
  title: str = ''  # the tooltip
  dots: np.ndarray | None = None  # numbers drawn below the marks
  clients: np.ndarray | None = None  # numbers drawn in place of marks


def plot_intervals(
  rows: Sequence[Row],
  label: str,
  *,
  width: float = WIDTH,
  margins: tuple[float, float] = (LEFT, RIGHT),
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
  parts = svg.levels(x, marks, 0, bottom, signed=not axis, is_x=True)
  parts.append(svg.text(right, bottom + 38, label, 'end', 'label'))
  for number, row in enumerate(rows):
    parts.append(_row(x, height * number + height / 2 + 3, row))
  return svg.drawing(width, bottom + 44, label, *parts)


def _row(x: svg.Scale, y: float, row: Row) -> Markup:
  if not row.marks and not row.words and row.clients is None:
    box = {'x': 0, 'y': y - 5, 'width': 10, 'height': 10, 'rx': 2}
    drawn = [svg.tag('rect', **box, class_='swatch')] * bool(row.css)
    left = 17 if row.css else x.start
    drawn.append(svg.text(left, y + 4, row.label, 'name'))
    return svg.tag('g', *drawn, class_=row.css or None)
  parts = [svg.text(x.start - 12, y + 4, row.label, 'end')]
  if row.clients is not None:
    parts.append(_cloud(x, y, row.label, row.clients))
  if row.dots is not None:
    values = np.sort(row.dots[np.isfinite(row.dots)])
    places = np.linspace(0, values.size - 1, min(values.size, MOST_DOTS))
    values = values[places.astype(int)]
    parts.append(svg.cloud(x(values), y + 9, 22))
  for mark in row.marks:
    if not math.isfinite(mark.value):
      continue
    at, drawn = y + mark.shift, []
    if math.isfinite(mark.low) and math.isfinite(mark.high):
      drawn.append(svg.line(x(mark.low), at, x(mark.high), at, 'link'))
    drawn.append(
      svg.marker(mark.marker, x(mark.value), at, mark.size, mark.kind)
    )
    parts += [svg.tag('g', *drawn, class_=mark.css)] if mark.css else drawn
  for number, line in enumerate(row.words):
    parts.append(svg.text(x.end + 12, y + 4 + 15 * number, line))
  return svg.tag('g', *parts, class_=row.css or None, title=row.title)

"""Curves as SVG; accuracies are in percent.

Colours come from the CSS class of a series; see svg.py.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.results.charts import svg

WIDTH, HEIGHT = 560, 310  # in units of text that is 12 high
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 34, 46
LINE_WIDTH = 2.0  # dashes are in units of it
MARKS = 9  # on a line; its dashes stay visible between them


class Series(NamedTuple):
  """A line and its band; all are [T]."""

  label: str
  css: str
  dash: Sequence[float]  # lengths of strokes and gaps; (): solid
  marker: str
  x: np.ndarray
  y: np.ndarray
  low: np.ndarray | None = None
  high: np.ndarray | None = None
  text: Callable[[float], str] = svg.plain  # of a number


def curves(
  title: str, series: Sequence[Series], x_label: str, y_label: str
) -> list[svg.Panel]:
  """Return a panel of the lines that have numbers; none without any.

  Lines are drawn over bands; a mark shows its numbers as a tooltip.
  """
  series = [line for line in series if np.isfinite(line.y).any()]
  if not series:
    return []
  last = max(float(curve.x.max()) for curve in series)
  x = svg.Scale(0.0, last if last > 0 else 1.0, LEFT, WIDTH - RIGHT)
  parts = [part for line in series for part in (line.y, line.low, line.high)]
  heights = [part for part in parts if part is not None]
  y, marks = svg.enclosing(heights, HEIGHT - BOTTOM, TOP)
  parts = [svg.text(0, 14, y_label, 'label')]
  parts += svg.levels(y, marks, LEFT, WIDTH - RIGHT)
  for tick in svg.ticks(x.low, x.high, 6):
    if x.low <= tick <= x.high:
      number = f'{tick:,g}'
      parts.append(svg.text(x(tick), HEIGHT - BOTTOM + 20, number, 'middle'))
  parts.append(svg.text(WIDTH - RIGHT, HEIGHT - 4, x_label, 'end', 'label'))
  for curve in series:
    if curve.low is not None:
      known = np.isfinite(curve.low) & np.isfinite(curve.high)
      low, high = y(curve.low[known]), y(curve.high[known])
      data = svg.shape(x(curve.x[known]), low, high)
      parts.append(svg.tag('path', d=data, class_=f'band {curve.css}'))
  parts += [_line(curve, x, y) for curve in series]
  label = f'{y_label} against {x_label}'
  chart = svg.drawing(WIDTH, HEIGHT, label, *parts)
  return [svg.Panel(title, chart, keys=tuple(map(_key, series)))]


def _key(series: Series) -> svg.Key:
  """Return the line of a legend."""
  stroke = _stroke('M0 8h34', series.dash)
  mark = svg.marker(series.marker, 17, 8, 4, 'mark')
  box = {'viewBox': '0 0 34 16', 'class_': f'sample {series.css}'}
  sample = svg.tag('svg', stroke, mark, **box, aria_hidden='true')
  return svg.Key(sample, series.label, series.text(series.y[-1]))


def _stroke(data: str, dash: Sequence[float]) -> Markup:
  dashes = ' '.join(svg.short(LINE_WIDTH * length) for length in dash)
  return svg.tag('path', d=data, class_='line', stroke_dasharray=dashes or None)


def _line(series: Series, x: svg.Scale, y: svg.Scale) -> Markup:
  across, heights = x(series.x), y(series.y)
  parts = [_stroke(svg.path_through(across, heights), series.dash)]
  step = math.ceil(len(across) / MARKS)
  # Counted from the end, so that the last value has a mark.
  for at in range(len(across) - 1, -1, -step):
    if math.isfinite(series.y[at]):
      title = f'{series.label}, {series.x[at]:,g}: {series.text(series.y[at])}'
      if series.low is not None:
        ends = series.text(series.low[at]), series.text(series.high[at])
        title += f' ({ends[0]} to {ends[1]})'
      parts.append(
        svg.marker(series.marker, across[at], heights[at], 4, 'mark', title)
      )
  return svg.tag('g', *parts, class_=series.css)

"""Curves as SVG for the page; accuracies are in percent.

Colours come from the CSS class of a series; see svg.py.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.page.svg import (
  Scale,
  dash_array,
  drawing,
  line,
  marker,
  path_through,
  plain,
  tag,
  text,
  ticks,
)
from fedjax_pfl.report.styles import Style

WIDTH, HEIGHT = 560, 310  # in units of text that is 12 high
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 34, 46
MARKS = 9  # on a line; its dashes stay visible between them


class Series(NamedTuple):
  """A line and its band; all are [T]."""

  label: str
  css: str
  style: Style
  x: np.ndarray
  y: np.ndarray
  low: np.ndarray | None = None
  high: np.ndarray | None = None


def plot_lines(series: Sequence[Series], x_label: str, y_label: str) -> Markup:
  """Draw lines over bands; a mark shows its numbers as a tooltip."""
  x, y, marks = _scales(series)
  parts = [text(0, 14, y_label, 'label')]
  for tick in marks:
    at = y(tick)
    parts.append(line(LEFT, at, WIDTH - RIGHT, at, 'grid'))
    parts.append(text(LEFT - 8, at + 4, f'{tick:g}', 'end'))
  for tick in ticks(x.low, x.high, 6):
    if x.low <= tick <= x.high:
      words = f'{tick:,g}'
      parts.append(text(x(tick), HEIGHT - BOTTOM + 20, words, 'middle'))
  parts.append(text(WIDTH - RIGHT, HEIGHT - 4, x_label, 'end', 'label'))
  parts += [_band(one, x, y) for one in series if one.low is not None]
  parts += [_line(one, x, y) for one in series]
  return drawing(WIDTH, HEIGHT, f'{y_label} against {x_label}', *parts)


def line_sample(css: str, style: Style) -> Markup:
  """Draw the line and the mark of a series for a legend."""
  stroke = tag(
    'path', d='M0 8h34', class_='line', stroke_dasharray=dash_array(style.dash)
  )
  mark = tag('path', d=marker(style.marker, 17, 8, 4), class_='mark')
  return tag(
    'svg',
    *(stroke, mark),
    viewBox='0 0 34 16',
    class_=f'sample {css}',
    aria_hidden='true',
  )


def _scales(series: Sequence[Series]) -> tuple[Scale, Scale, list[float]]:
  """Return both scales, and the ticks of y, which need not begin at zero."""
  x = np.concatenate([one.x for one in series])
  bands = [one.low for one in series] + [one.high for one in series]
  y = np.concatenate(
    [one.y for one in series] + [one for one in bands if one is not None]
  )
  y = y[np.isfinite(y)]
  marks = ticks(float(y.min()), float(y.max()))
  last = float(x.max()) if x.max() > 0 else 1.0
  return (
    Scale(0.0, last, LEFT, WIDTH - RIGHT),
    Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP),
    marks,
  )


def _band(one: Series, x: Scale, y: Scale) -> Markup:
  known = np.isfinite(one.low) & np.isfinite(one.high)
  around = np.concatenate([one.x[known], one.x[known][::-1]])
  ends = np.concatenate([one.low[known], one.high[known][::-1]])
  data = path_through(x(around), y(ends))
  return tag('path', d=f'{data}z', class_=f'band {one.css}')


def _line(one: Series, x: Scale, y: Scale) -> Markup:
  parts = [
    tag(
      'path',
      d=path_through(x(one.x), y(one.y)),
      class_='line',
      stroke_dasharray=dash_array(one.style.dash),
    )
  ]
  step = math.ceil(len(one.x) / MARKS)
  # Counted from the end, so that the last value has a mark.
  for at in range(len(one.x) - 1, -1, -step):
    if math.isfinite(one.y[at]):
      words = f'{one.label}, {one.x[at]:,g}: {plain(one.y[at])}'
      if one.low is not None:
        words += f' ({plain(one.low[at])} to {plain(one.high[at])})'
      place = marker(one.style.marker, x(one.x[at]), y(one.y[at]), 4)
      parts.append(tag('path', tag('title', words), d=place, class_='mark'))
  return tag('g', *parts, class_=one.css)

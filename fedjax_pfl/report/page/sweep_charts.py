"""Charts of a sweep as SVG: heat map, strip of dots, one curve among others."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.page.svg import (
  Scale,
  dots,
  drawing,
  line,
  path_through,
  plain,
  tag,
  text,
  ticks,
)

WIDTH = 560  # in units of text that is 12 high
CELL = 44  # height of a row of the heat map
PALE, DARK = 0.06, 0.6  # opacity of the lowest and the highest cell
STRIP = 280  # height of a strip of dots
SMALL, LOW = 320, 190  # width and height of one of many curves
CHARACTER = 7  # width of one


def plot_heat_map(
  cells: Mapping[tuple[str, str], float],
  axes: Sequence[Sequence[str]],
  names: Sequence[str],
  css: str,
  best: tuple[str, str],
) -> Markup:
  """Draw a number for every (row, column), the darkest the highest.

  The `best` has a frame: the highest, unless that one has fewer seeds.
  """
  rows, columns = axes
  left = CHARACTER * max(map(len, [*rows, names[0]])) + 16
  top, width = 40, (WIDTH - left) / len(columns)
  known = [value for value in cells.values() if np.isfinite(value)]
  low, high = min(known), max(known)
  shade = Scale(low, high if high > low else low + 1, PALE, DARK)
  parts = [
    text(left, 14, names[1], 'label'),
    text(left - 8, top - 6, names[0], 'end', 'label'),
  ]
  for at, column in enumerate(columns):
    parts.append(text(left + (at + 0.5) * width, top - 6, column, 'middle'))
  for place, row in enumerate(rows):
    y = top + place * CELL
    parts.append(text(left - 8, y + CELL / 2 + 4, row, 'end', 'row'))
    for at, column in enumerate(columns):
      value, is_best = cells.get((row, column), np.nan), (row, column) == best
      parts += _cell(left + at * width, y, width, value, shade, is_best)
  height = top + len(rows) * CELL + 4
  label = f'accuracy, {names[0]} against {names[1]}'
  return drawing(WIDTH, height, label, tag('g', *parts, class_=css))


def _cell(
  x: float, y: float, width: float, value: float, shade: Scale, is_best: bool
) -> list[Markup]:
  """Return a coloured box with its number; of the best with a frame."""
  box = {'x': x + 1, 'y': y + 1, 'width': width - 2, 'height': CELL - 2}
  parts = []
  if np.isfinite(value):
    opacity = f'{float(shade(value)):.2f}'
    parts.append(tag('rect', **box, class_='swatch', opacity=opacity))
  if is_best:
    parts.append(tag('rect', **box, class_='frame'))
  middle = x + width / 2, y + CELL / 2 + 4
  return [*parts, text(*middle, plain(value), 'middle', 'strong')]


def plot_strip(
  values: Sequence[str],
  accuracy: Sequence[np.ndarray],
  axis: Sequence[str],
  name: str,
  css: str,
) -> Markup:
  """Draw settings as dots above their value of one field, seeds as bars.

  Settings with a seed without a finite accuracy have no dot.
  """
  left, top, bottom = 44, 20, 44
  known = np.concatenate(accuracy)
  known = known[np.isfinite(known)]
  marks = ticks(float(known.min()), float(known.max()))
  y = Scale(marks[0], marks[-1], STRIP - bottom, top)
  width = (WIDTH - left) / len(axis)
  parts = []
  for mark in marks:
    parts.append(line(left, y(mark), WIDTH, y(mark), 'grid'))
    parts.append(text(left - 8, y(mark) + 4, f'{mark:g}', 'end'))
  for at, value in enumerate(axis):
    middle = left + (at + 0.5) * width
    parts.append(text(middle, STRIP - bottom + 20, value, 'middle'))
    own = [
      one
      for mine, one in zip(values, accuracy, strict=True)
      if mine == value and np.isfinite(one).all()
    ]
    # Side by side, so that equal ones are seen.
    for place, seeds in enumerate(own):
      x = middle + (place - (len(own) - 1) / 2) * min(
        14, 0.8 * width / len(own)
      )
      ends = float(y(seeds.min())), float(y(seeds.max()))
      parts.append(line(x, ends[0], x, ends[1], 'link'))
      parts.append(dots([x], [float(y(seeds.mean()))], 9))
  parts.append(text(WIDTH, STRIP - 4, name, 'end', 'label'))
  label = f'accuracy against {name}'
  return drawing(WIDTH, STRIP, label, tag('g', *parts, class_=css))


def plot_before_others(
  curves: Sequence[tuple[np.ndarray, np.ndarray]], place: int, css: str
) -> Markup:
  """Draw one of the curves (x [T], y [T]) before the others, in grey."""
  left, top, bottom = 34, 10, 26
  x_all = np.concatenate([x for x, _ in curves])
  y_all = np.concatenate([y for _, y in curves])
  y_all = y_all[np.isfinite(y_all)]
  marks = ticks(float(y_all.min()), float(y_all.max()), 4)
  x = Scale(0.0, float(x_all.max()) or 1.0, left, SMALL - 8)
  y = Scale(marks[0], marks[-1], LOW - bottom, top)
  parts = []
  for mark in marks:
    parts.append(line(left, y(mark), SMALL - 8, y(mark), 'grid'))
    parts.append(text(left - 6, y(mark) + 4, f'{mark:g}', 'end'))
  last = float(x_all.max())
  words = f'round {last:,g}'
  parts.append(text(SMALL - 8, LOW - 8, words, 'end'))
  order = [other for other in range(len(curves)) if other != place] + [place]
  for other in order:
    rounds, values = curves[other]
    kind = 'line' if other == place else 'other'
    path = path_through(x(rounds), y(values))
    parts.append(tag('path', d=path, class_=kind))
  label = 'accuracy of one setting over rounds, before the others'
  return drawing(SMALL, LOW, label, tag('g', *parts, class_=css))

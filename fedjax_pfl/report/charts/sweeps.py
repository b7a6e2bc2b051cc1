"""Charts of a sweep as SVG: heat map, strip of dots."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import svg

WIDTH = 560  # in units of text that is 12 high
CELL = 44  # height of a row of the heat map
PALE, DARK = 0.06, 0.6  # opacity of the lowest and the highest cell
STRIP = 280  # height of a strip of dots
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
  shade = svg.Scale(low, high if high > low else low + 1, PALE, DARK)
  parts = [
    svg.text(left, 14, names[1], 'label'),
    svg.text(left - 8, top - 6, names[0], 'end', 'label'),
  ]
  for at, column in enumerate(columns):
    parts.append(svg.text(left + (at + 0.5) * width, top - 6, column, 'middle'))
  for place, row in enumerate(rows):
    y = top + place * CELL
    parts.append(svg.text(left - 8, y + CELL / 2 + 4, row, 'end', 'row'))
    for at, column in enumerate(columns):
      x, value = left + at * width, cells.get((row, column), np.nan)
      box = {'x': x + 1, 'y': y + 1, 'width': width - 2, 'height': CELL - 2}
      if np.isfinite(value):
        opacity = f'{float(shade(value)):.2f}'
        parts.append(svg.tag('rect', **box, class_='swatch', opacity=opacity))
      if (row, column) == best:
        parts.append(svg.tag('rect', **box, class_='frame'))
      middle = x + width / 2, y + CELL / 2 + 4
      parts.append(svg.text(*middle, svg.plain(value), 'middle', 'strong'))
  height = top + len(rows) * CELL + 4
  label = f'accuracy, {names[0]} against {names[1]}'
  return svg.drawing(WIDTH, height, label, svg.tag('g', *parts, class_=css))


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
  left, bottom = 44, STRIP - 44
  y, marks = svg.enclosing(accuracy, bottom, 20)
  width = (WIDTH - left) / len(axis)
  parts = svg.levels(y, marks, left, WIDTH)
  for at, value in enumerate(axis):
    middle = left + (at + 0.5) * width
    parts.append(svg.text(middle, bottom + 20, value, 'middle'))
    shown = [
      seeds
      for one, seeds in zip(values, accuracy, strict=True)
      if one == value and np.isfinite(seeds).all()
    ]
    # Side by side, so that equal ones are seen.
    step = min(14, 0.8 * width / max(len(shown), 1))
    for place, seeds in enumerate(shown):
      x = middle + (place - (len(shown) - 1) / 2) * step
      ends = float(y(seeds.min())), float(y(seeds.max()))
      parts.append(svg.line(x, ends[0], x, ends[1], 'link'))
      parts.append(svg.dots([x], [float(y(seeds.mean()))], 9))
  parts.append(svg.text(WIDTH, STRIP - 4, name, 'end', 'label'))
  label = f'accuracy against {name}'
  return svg.drawing(WIDTH, STRIP, label, svg.tag('g', *parts, class_=css))

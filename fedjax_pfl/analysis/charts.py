"""Charts of the analyses: lines, and points in classes."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedjax_pfl.report.charts.lines import Series, curves
from fedjax_pfl.report.charts.panels import Key, Panel
from fedjax_pfl.report.charts.svg import drawing, marker, tag, text
from fedjax_pfl.report.styles import Style, distinct_styles

SIDE, EDGE = 500, 12  # of a chart of points
MAX_NAMES = 12  # that fit among the points

Line = tuple[Style, np.ndarray, np.ndarray]  # the style, x [T] and y [T]
Chart = tuple[list[Panel], dict[str, str]]  # and {css class: colour}


def chart(lines: Iterable[Line], x_label: str, y_label: str) -> Chart:
  """Return the chart of lines, each under the name of its style."""
  series = [
    Series(style.name, f'c{at}', style, x, y)
    for at, (style, x, y) in enumerate(lines)
  ]
  colours = {one.css: one.style.colour for one in series}
  return curves('', series, x_label, y_label), colours


def points_chart(
  title: str, points: np.ndarray, group: np.ndarray, names: Sequence[str]
) -> Chart:
  """Draw points [P, 2] in the colour and marker of their group [P].

  Up to 12 groups are also named in the figure, which can then be read without
  colour. Coordinates of t-SNE mean nothing, so the axis has no ticks.
  """
  shown = np.unique(group)
  styles = distinct_styles([names[number] for number in shown])
  low, high = points.min(0), points.max(0)
  scale = (SIDE - 2 * EDGE) / max(*(high - low), 1e-9)  # of both axes
  places = SIDE / 2 + scale * (points - (low + high) / 2) * [1, -1]
  size = float(np.clip(100 / len(points) ** 0.5, 1.4, 3.5))
  parts, keys, colours = [], [], {}
  for number, style in zip(shown, styles.values(), strict=True):
    css = f'g{number}'
    own = places[group == number]
    data = ''.join(marker(style.marker, x, y, size) for x, y in own)
    tooltip = tag('title', style.name)
    dots = tag('path', tooltip, d=data, class_=f'swatch {css}', opacity='0.6')
    parts.append(dots)
    sample = tag('path', d=marker(style.marker, 17, 8, 5), class_='swatch')
    sample = tag('svg', sample, viewBox='0 0 34 16', class_=f'sample {css}')
    keys.append(Key(sample, style.name, ''))
    colours[css] = style.colour
  if len(shown) <= MAX_NAMES:
    for number in shown:
      x, y = np.median(places[group == number], 0)
      parts.append(text(x, y + 4, names[number], 'middle', 'name'))
  svg = drawing(SIDE, SIDE, title, *parts)
  return [Panel(title, svg, keys=tuple(keys))], colours

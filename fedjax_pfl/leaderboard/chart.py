"""Differences to a baseline with their intervals, as SVG for the page."""

from collections.abc import Mapping

from markupsafe import Markup

from fedjax_pfl.leaderboard.verdicts import OPEN, Comparison
from fedjax_pfl.report.page.svg import (
  Scale,
  drawing,
  line,
  marker,
  tag,
  text,
  ticks,
)
from fedjax_pfl.report.styles import display_name

WIDTH, LEFT, RIGHT, ROW = 560, 112, 58, 22


def plot_differences(
  found: Mapping[str, Comparison], css: Mapping[str, str], label: str
) -> Markup:
  """Draw a point and an interval for each method, the highest on top.

  A filled point is distinguishable from 0, a hollow one is not.
  """
  order = sorted(found, key=lambda method: -found[method].mean)
  ends = [0.0, *(end for one in found.values() for end in (one.low, one.high))]
  marks = ticks(min(ends), max(ends), 6)
  x = Scale(marks[0], marks[-1], LEFT, WIDTH - RIGHT)
  bottom = ROW * len(order) + 6
  parts = []
  for tick in marks:
    parts.append(line(x(tick), 0, x(tick), bottom, 'grid' if tick else 'axis'))
    parts.append(
      text(x(tick), bottom + 18, f'{tick:+g}'.replace('+0', '0'), 'middle')
    )
  parts.append(text(WIDTH - RIGHT, bottom + 38, label, 'end', 'label'))
  for place, method in enumerate(order):
    y = ROW * place + ROW / 2 + 3
    parts.append(_interval(x, y, method, found[method], css[method]))
  return drawing(WIDTH, bottom + 44, label, *parts)


def _interval(
  x: Scale, y: float, method: str, one: Comparison, css: str
) -> Markup:
  words = (
    f'{display_name(method)}: {one.mean:+.2f} points, {one.low:+.2f} to '
    f'{one.high:+.2f}: {one.verdict}'
  )
  kind = 'hollow' if one.verdict == OPEN else 'mark'
  return tag(
    'g',
    tag('title', words),
    text(LEFT - 12, y + 4, display_name(method), 'end'),
    line(x(one.low), y, x(one.high), y, 'link'),
    tag('path', d=marker('o', x(one.mean), y, 5), class_=kind),
    text(WIDTH - RIGHT + 12, y + 4, f'{round(one.mean, 1) + 0.0:+.1f}'),
    class_=css,
  )

"""A bar for the gain of every client as SVG; gains are in points."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import svg
from fedjax_pfl.report.charts.rows import MAX_DOTS, Change

WIDTH, HEIGHT, LEFT, RIGHT = 560, 208, 60, 14  # text is 12 high
CORNERS = 1000  # of the shape of many bars: more than a screen resolves


def ends_of(changes: Sequence[Change]) -> tuple[float, float]:
  """Return the ends of the axis that the charts of these changes share."""
  gains = np.concatenate([change.gains for change in changes])
  gains = gains[np.isfinite(gains)]
  return min(0.0, gains.min(initial=0)), max(1.0, gains.max(initial=0))


def plot_gains(
  change: Change, names: Sequence[str], ends: tuple[float, float]
) -> Markup:
  """Draw the gain of every client, from the largest to the smallest.

  `ends` are those of the axis.
  """
  gains = change.gains
  order = np.argsort(-gains, kind='stable')
  order = order[np.isfinite(gains[order])]
  marks = svg.ticks(*ends, 4)
  y = svg.Scale(marks[0], marks[-1], HEIGHT - 10, 34)
  x = svg.Scale(0, max(len(order), 1), LEFT, WIDTH - RIGHT)
  parts = [svg.text(0, 13, 'gain, points', 'label')]
  parts += svg.levels(y, marks, LEFT, WIDTH - RIGHT, differences=True)
  if len(order) > MAX_DOTS:  # one shape
    places = np.unique(np.linspace(0, len(order) - 1, CORNERS).astype(int))
    across = x([places[0], *(places + 0.5), len(order)])
    data = svg.path_through(across, [y(0), *y(gains[order[places]]), y(0)])
    title = svg.tag('title', f'{len(order):,} clients')
    parts.append(svg.tag('path', title, d=f'{data}z', class_='bar'))
    order = order[:0]
  gap = min(1.5, 0.2 * (x(1) - x(0)))
  for place, at in enumerate(order):
    before, after = svg.plain(change.before[at]), svg.plain(change.after[at])
    words = f'{names[at]}: {before} to {after} ({gains[at]:+.1f})'
    parts.append(
      svg.tag(
        'rect',
        svg.tag('title', words),
        x=x(place),
        y=min(y(0), y(gains[at])),
        width=x(1) - x(0) - gap,
        height=max(abs(y(gains[at]) - y(0)), 0.5),
        class_='bar' if gains[at] >= 0 else 'bar lost',
      )
    )
  label = f'{change.label}: gain of every client'
  return svg.drawing(
    WIDTH, HEIGHT, label, svg.tag('g', *parts, class_=change.css)
  )

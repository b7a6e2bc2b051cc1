"""A bar for the gain of every client as SVG; gains are in points."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts.rows import MAX_DOTS, Change
from fedjax_pfl.report.charts.svg import (
  Scale,
  drawing,
  line,
  path_through,
  plain,
  signed,
  tag,
  text,
  ticks,
)

WIDTH, HEIGHT, LEFT, RIGHT = 560, 208, 60, 14  # text is 12 high
CORNERS = 1000  # of the shape of many bars: more than a screen resolves


def ends_of(changes: Sequence[Change]) -> tuple[float, float]:
  """Return the ends of the axis that the charts of these changes share."""
  gains = np.concatenate([change.gains for change in changes])
  gains = gains[np.isfinite(gains)]
  return min(0.0, gains.min(initial=0)), max(1.0, gains.max(initial=0))


def plot_gains(
  change: Change,
  names: Sequence[str],
  ends: tuple[float, float],
  *,
  word: str = 'gain',
) -> Markup:
  """Draw the gain of every client, from the largest to the smallest.

  `ends` are those of the axis; `word` names it.
  """
  gains = change.gains
  order = np.argsort(-gains, kind='stable')
  order = order[np.isfinite(gains[order])]
  marks = ticks(*ends, 4)
  y = Scale(marks[0], marks[-1], HEIGHT - 10, 34)
  x = Scale(0, max(len(order), 1), LEFT, WIDTH - RIGHT)
  parts = [text(0, 13, f'{word}, points', 'label')]
  for tick in marks:
    kind = 'grid' if tick else 'axis'
    parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), kind))
    parts.append(text(LEFT - 8, y(tick) + 4, signed(tick), 'end'))
  if len(order) > MAX_DOTS:
    parts.append(_area(x, y, gains[order]))
  else:
    for place, at in enumerate(order):
      before, after = plain(change.before[at]), plain(change.after[at])
      words = f'{names[at]}: {before} to {after} ({gains[at]:+.1f})'
      parts.append(_bar(x(place), x(place + 1), y(0), y(gains[at]), words))
  label = f'{change.label}: {word} of every client'
  return drawing(WIDTH, HEIGHT, label, tag('g', *parts, class_=change.css))


def _bar(
  left: float, right: float, zero: float, top: float, words: str
) -> Markup:
  gap = min(1.5, 0.2 * (right - left))
  return tag(
    'rect',
    tag('title', words),
    x=left,
    y=min(zero, top),
    width=right - left - gap,
    height=max(abs(top - zero), 0.5),
    class_='bar' if top <= zero else 'bar lost',
  )


def _area(x: Scale, y: Scale, gains: np.ndarray) -> Markup:
  """Draw many sorted bars as one shape."""
  places = np.unique(np.linspace(0, len(gains) - 1, CORNERS).astype(int))
  across = x([places[0], *(places + 0.5), len(gains)])
  data = path_through(across, [y(0), *y(gains[places]), y(0)])
  words = f'{len(gains):,} clients'
  return tag('path', tag('title', words), d=f'{data}z', class_='bar')

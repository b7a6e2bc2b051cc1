"""Accuracies of the clients and their gains as SVG for the page.

Accuracies are in percent. Colours come from a CSS class; see svg.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.page.svg import (
  Scale,
  dots,
  drawing,
  line,
  marker,
  path_through,
  plain,
  tag,
  text,
  ticks,
)

WIDTH = 560  # in units of text that is 12 high
LEFT, RIGHT = 170, 58  # of charts whose rows have names
NAME, ROW, GAP = 24, 26, 14  # heights: of a name, a row, the gap below
MAX_DOTS = 150  # of more clients, the density is drawn


class Clients(NamedTuple):
  """One group of runs: accuracies of its clients before and after, [K]."""

  label: str
  css: str
  before: np.ndarray | None
  after: np.ndarray


class Levels(NamedTuple):
  """One group of runs: its numbers before and after, by name."""

  label: str
  css: str
  pairs: Sequence[tuple[str, float, float]]  # before may be NaN


def plot_clients(rows: Sequence[Clients]) -> Markup:
  """Draw every client as a dot; box: the middle half, bar: the mean."""
  groups = [
    (
      row.label,
      row.css,
      {
        kind: partial(_cloud, values=values, kind=kind)
        for kind, values in (('before', row.before), ('after', row.after))
        if values is not None
      },
    )
    for row in rows
  ]
  return _rows(groups, 'accuracy of a client, %')


def plot_levels(rows: Sequence[Levels]) -> Markup:
  """Draw numbers before (hollow) and after (filled)."""
  groups = [
    (
      row.label,
      row.css,
      {
        name: partial(_dumbbell, before=before, after=after)
        for name, before, after in row.pairs
      },
    )
    for row in rows
  ]
  return _rows(groups, 'accuracy, %')


def plot_gains(
  clients: Clients, names: Sequence[str], ends: tuple, *, word: str = 'gain'
) -> Markup:
  """Draw the gain of every client, from the largest to the smallest.

  `ends` are those of the axis, which several charts share; `word` names it.
  """
  height, left = 208, 60
  gains = clients.after - clients.before
  order = np.argsort(-gains, kind='stable')
  order = order[np.isfinite(gains[order])]
  marks = ticks(*ends, 4)
  y = Scale(marks[0], marks[-1], height - 10, 34)
  x = Scale(0, max(len(order), 1), left, WIDTH - 14)
  parts = [text(0, 13, f'{word}, points', 'label')]
  for tick in marks:
    kind = 'grid' if tick else 'axis'
    parts.append(line(left, y(tick), WIDTH - 14, y(tick), kind))
    parts.append(
      text(left - 8, y(tick) + 4, f'{tick:+g}'.replace('+0', '0'), 'end')
    )
  if len(order) > MAX_DOTS:
    parts.append(_area(x, y, gains[order]))
  else:
    parts += [
      _bar(
        (x(place), x(place + 1), y(0), y(gains[at])),
        f'{names[at]}: {plain(clients.before[at])} to '
        f'{plain(clients.after[at])} '
        f'({gains[at]:+.1f})',
      )
      for place, at in enumerate(order)
    ]
  return drawing(
    WIDTH,
    height,
    f'{clients.label}: {word} of every client',
    tag('g', *parts, class_=clients.css),
  )


def _rows(
  groups: Sequence[tuple[str, str, Mapping[str, Callable]]], label: str
) -> Markup:
  """Draw named groups of rows above one axis from 0 to 100."""
  x = Scale(0.0, 100.0, LEFT, WIDTH - RIGHT)
  parts: list[Any] = []
  y = 0
  for name, css, rows in groups:
    inner = [
      tag('rect', x=0, y=y + 5, width=10, height=10, rx=2, class_='swatch'),
      text(17, y + 15, name, 'name'),
    ]
    y += NAME
    for word, draw_fn in rows.items():
      inner.append(text(17, y + ROW / 2 + 4, word))
      inner.append(draw_fn(x, y + ROW / 2))
      y += ROW
    y += GAP
    parts.append(tag('g', *inner, class_=css))
  grid = []
  for tick in (0, 20, 40, 60, 80, 100):
    grid.append(line(x(tick), 20, x(tick), y, 'grid'))
    grid.append(text(x(tick), y + 18, f'{tick}', 'middle'))
  grid.append(text(WIDTH - RIGHT, y + 40, label, 'end', 'label'))
  return drawing(WIDTH, y + 46, label, *grid, *parts)


def _cloud(x: Scale, y: float, values: np.ndarray, kind: str) -> Markup:
  """Draw clients on a row: dots or their density, a box and the mean."""
  values = np.sort(values[np.isfinite(values)])
  if not values.size:
    return text(x(0) + 4, y + 4, 'no client')
  low, middle, high = np.percentile(values, [25, 50, 75])
  words = (
    f'{values.size:,} clients {kind}: mean {plain(values.mean())}, '
    f'median {plain(middle)}, middle half {plain(low)} to {plain(high)}, '
    f'all {plain(values[0])} to {plain(values[-1])}'
  )
  box = tag(
    'rect',
    x=x(low),
    y=y - 7,
    width=max(x(high) - x(low), 1.0),
    height=14,
    rx=2,
    class_='box',
  )
  mean = line(x(values.mean()), y - 9, x(values.mean()), y + 9, 'mean')
  draw_fn = _density if values.size > MAX_DOTS else _dots
  points = draw_fn(x, y, values)
  return tag('g', tag('title', words), points, box, mean, class_=kind)


def _dots(x: Scale, y: float, values: np.ndarray) -> Markup:
  # Equal accuracies are common with few test images: dots are spread.
  spread = 18 * (np.arange(values.size) * 0.618 % 1) - 9
  return dots(x(values), y + spread, 4.4)


def _density(x: Scale, y: float, values: np.ndarray) -> Markup:
  counts, edges = np.histogram(values, bins=50, range=(0, 100))
  half = 11 * counts / counts.max()
  middles = x((edges[1:] + edges[:-1]) / 2)
  data = path_through(
    [*middles, *middles[::-1]], [*(y - half), *(y + half)[::-1]]
  )
  return tag('path', d=f'{data}z', class_='density')


def _dumbbell(x: Scale, y: float, before: float, after: float) -> Markup:
  if not math.isfinite(after):
    return text(x(0) + 4, y + 4, 'no client')
  parts = []
  rises = not before > after
  if math.isfinite(before):
    parts.append(line(x(before), y, x(after), y, 'link'))
    hollow = tag('path', d=marker('o', x(before), y, 5), class_='hollow')
    place = (-10, 'end') if rises else (10, 'start')
    parts.append(hollow)
    words = text(x(before) + place[0], y + 4, plain(before), place[1])
    parts.append(words)
  parts.append(tag('path', d=marker('o', x(after), y, 5), class_='mark'))
  place = (10, 'start') if rises else (-10, 'end')
  parts.append(
    text(x(after) + place[0], y + 4, plain(after), place[1], 'strong')
  )
  return tag('g', *parts)


def _bar(ends: tuple[float, float, float, float], words: str) -> Markup:
  left, right, zero, top = ends
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
  # A thousand corners are more than a screen resolves.
  places = np.unique(np.linspace(0, len(gains) - 1, 1000).astype(int))
  across = x([places[0], *(places + 0.5), len(gains)])
  data = path_through(
    [across[0], *across[1:-1], across[-1]],
    [y(0), *y(gains[places]), y(0)],
  )
  words = f'{len(gains):,} clients'
  return tag('path', tag('title', words), d=f'{data}z', class_='bar')

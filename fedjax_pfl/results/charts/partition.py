"""The partition as SVG: class by client, dots are examples."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fedjax_pfl.results.charts import svg

AREA = 'Class against client: the area of a dot is the number of examples.'
FEW = 20  # classes or clients: the axis names each or every second
NARROW, WIDE = 560, 1120  # in units of text that is 12 high
MAX_CLIENTS = 120  # in a chart; of more, evenly spaced ones are drawn
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 26, 46
LETTER = 7.0  # the width of a letter, at most in the mean
# Diameters: dots overlap where there is no room; one example stays visible.
LARGEST, LEAST, SMALLEST = 22.0, 9.0, 2.0


def partition(
  title: str,
  counts: np.ndarray,
  ids: Sequence[Any],
  classes: Sequence[str] | None = None,
) -> svg.Panel:
  """Return the panel of examples [K, Y] by client and class.

  By their ids, and names of classes. A triangle below the axis is a client
  without any example.
  """
  sizes, largest, is_wide = counts.sum(1), counts.max(), len(counts) > 2 * FEW
  ends = np.unique([sizes.min(), sizes.max()])
  note = ' to '.join(f'{size:,}' for size in ends) + ' examples a client'
  if none := int((sizes == 0).sum()):
    note += f' ({none:,} have none)'
  note += f'. Largest dot: {largest:,}.'
  if len(counts) > MAX_CLIENTS:
    note += f' Drawn: {MAX_CLIENTS} of {len(counts):,} clients, evenly spaced.'
  width = WIDE if is_wide else NARROW
  if classes is None:
    classes = range(counts.shape[1])
  shown = np.linspace(0, len(counts) - 1, min(len(counts), MAX_CLIENTS))
  shown = shown.astype(int)
  names = [f'{ids[at]}' for at in shown]
  chart = _plot(counts[shown], names, classes, max(int(largest), 1), width)
  return svg.Panel(title, chart, note, is_wide=is_wide)


def _plot(
  counts: np.ndarray,
  names: Sequence[str],
  classes: Sequence[Any],
  largest: int,
  width: float,
) -> Markup:
  """Draw examples as dots; a dot of full size is `largest` examples."""
  number, num_classes = counts.shape
  up = float(np.clip(300 / num_classes, 4, LARGEST))
  bottom = TOP + up * num_classes
  # Longer names make the margin wider, and labels of clients fewer.
  longest = [
    max(len(f'{word}') for word in words) for words in (classes, names)
  ]
  left = max(LEFT, 14 + LETTER * longest[0])
  across = (width - left - RIGHT) / number
  x = left + across * (np.arange(number) + 0.5)
  y = bottom - up * (np.arange(num_classes) + 0.5)
  unit = max(LEAST, 0.94 * min(across, up, LARGEST)) / largest**0.5
  parts = [svg.text(0, 13, 'class', 'label')]
  for at in _numbers(num_classes):
    parts.append(svg.line(left, y[at], width - RIGHT, y[at], 'grid'))
    parts.append(svg.text(left - 8, y[at] + 4, f'{classes[at]}', 'end'))
  ticks = _numbers(number)
  apart = across * (ticks[1] - ticks[0] if len(ticks) > 1 else number)
  named = ticks[:: math.ceil(LETTER * (longest[1] + 1) / apart)]
  for rank, at in enumerate(named):
    kind = 'middle', *['second'] * (rank % 2)  # a phone has no room for these
    parts.append(svg.text(x[at], bottom + 22, names[at], *kind))
  parts.append(svg.text(width - RIGHT, bottom + 42, 'client', 'end', 'label'))
  for column, name, held in zip(x, names, counts, strict=True):
    labels = np.flatnonzero(held)
    summary = f'{held.sum():,} examples of {len(labels)} classes'
    title = f'client {name}: {summary}'
    if not len(labels):
      parts.append(svg.marker('^', column, bottom + 6, 4, 'empty', title))
      continue
    sizes: dict[str, list[float]] = {}  # dots of one size are one path
    for label in labels:
      size = max(SMALLEST, unit * float(held[label]) ** 0.5)
      sizes.setdefault(svg.short(size), []).append(y[label])
    pairs = sizes.items()
    dots = [svg.dots([column] * len(at), at, size) for size, at in pairs]
    parts.append(svg.tag('g', *dots, title=title))
  label = 'examples by client and class'
  return svg.drawing(width, bottom + BOTTOM, label, *parts)


def _numbers(length: int) -> list[int]:
  """Return which of 0 .. length - 1 are labelled on an axis."""
  if length <= FEW:
    return list(range(0, length, 1 if length <= 10 else 2))
  return [int(tick) for tick in svg.ticks(0, length - 1, 8) if tick < length]

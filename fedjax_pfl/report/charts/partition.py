"""The partition as SVG: class by client, dots are examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import svg
from fedjax_pfl.report.charts.panels import Panel

AREA = 'Class against client: the area of a dot is the number of examples.'
FEW = 20  # classes or clients: the axis names each or every second
NARROW, WIDE = 560, 1120  # in units of text that is 12 high
MAX_CLIENTS = 120  # in a chart; of more, evenly spaced ones are drawn
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 26, 46
# Diameters: dots overlap where there is no room; one example stays visible.
LARGEST, LEAST, SMALLEST = 22.0, 9.0, 2.0


def partition(title: str, counts: np.ndarray, ids: Sequence[Any]) -> Panel:
  """Return the panel of examples [K, Y] by client and class."""
  note = f'{describe_sizes(counts)}. Largest dot: {counts.max():,}.'
  if len(counts) > MAX_CLIENTS:
    note += f' Drawn: {MAX_CLIENTS} of {len(counts):,} clients, evenly spaced.'
  drawn = plot_partition(counts, ids, max(int(counts.max()), 1))
  return Panel(title, drawn, note, is_wide=_is_wide(counts))


def describe_sizes(counts: np.ndarray) -> str:
  """Return 'a to b examples a client', and how many clients have none."""
  sizes = counts.sum(1)
  ends = np.unique([sizes.min(), sizes.max()])
  words = ' to '.join(f'{one:,}' for one in ends)
  none = int((sizes == 0).sum())
  return f'{words} examples a client' + f' ({none:,} have none)' * (none > 0)


def plot_partition(
  counts: np.ndarray, ids: Sequence[Any], largest: int
) -> Markup:
  """Draw examples [K, Y] as dots; a dot of full size is `largest` examples.

  A triangle below the axis is a client without any example.
  """
  number, num_classes = counts.shape
  shown = np.linspace(0, number - 1, min(number, MAX_CLIENTS)).astype(int)
  width = WIDE if _is_wide(counts) else NARROW
  up = float(np.clip(300 / num_classes, 4, LARGEST))
  bottom = TOP + up * num_classes
  across = (width - LEFT - RIGHT) / len(shown)
  x = LEFT + across * (np.arange(len(shown)) + 0.5)
  y = bottom - up * (np.arange(num_classes) + 0.5)
  unit = max(LEAST, 0.94 * min(across, up, LARGEST)) / largest**0.5
  parts = [svg.text(0, 13, 'class', 'label')]
  for at in _numbers(num_classes):
    parts.append(svg.line(LEFT, y[at], width - RIGHT, y[at], 'grid'))
    parts.append(svg.text(LEFT - 8, y[at] + 4, f'{at}', 'end'))
  for at in _numbers(len(shown)):
    parts.append(svg.text(x[at], bottom + 22, f'{ids[shown[at]]}', 'middle'))
  parts.append(svg.text(width - RIGHT, bottom + 42, 'client', 'end', 'label'))
  for column, client in zip(x, shown, strict=True):
    held, classes = counts[client], np.flatnonzero(counts[client])
    words = f'{held.sum():,} examples of {len(classes)} classes'
    title = f'client {ids[client]}: {words}'
    if not len(classes):
      parts.append(svg.marker('^', column, bottom + 6, 4, 'empty', title))
      continue
    sizes: dict[str, list[float]] = {}  # dots of one size are one path
    for label in classes:
      size = max(SMALLEST, unit * float(held[label]) ** 0.5)
      sizes.setdefault(svg.short(size), []).append(y[label])
    columns = [
      svg.dots([column] * len(one), one, s) for s, one in sizes.items()
    ]
    parts.append(svg.tag('g', *columns, title=title))
  label = 'examples by client and class'
  return svg.drawing(width, bottom + BOTTOM, label, *parts)


def _is_wide(counts: np.ndarray) -> bool:
  return len(counts) > 2 * FEW


def _numbers(length: int) -> list[int]:
  """Return which of 0 .. length - 1 are labelled on an axis."""
  if length <= FEW:
    return list(range(0, length, 1 if length <= 10 else 2))
  return [int(tick) for tick in svg.ticks(0, length - 1, 8) if tick < length]

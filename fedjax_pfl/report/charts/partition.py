"""The partition as SVG: class by client, dots are examples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts.svg import (
  dots,
  drawing,
  line,
  marker,
  short,
  tag,
  text,
  ticks,
)

FEW = 20  # classes or clients: the axis names each or every second
NARROW, WIDE = 560, 1120  # in units of text that is 12 high
MAX_CLIENTS = 120  # in a chart; of more, evenly spaced ones are drawn
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 26, 46
# Diameters: dots overlap where there is no room; one example stays visible.
LARGEST, LEAST, SMALLEST = 22.0, 9.0, 2.0


def shown_clients(number: int) -> np.ndarray:
  """Return the positions of the clients that are drawn.

  >>> len(shown_clients(20)), len(shown_clients(3400))
  (20, 120)
  """
  return np.unique(
    np.linspace(0, number - 1, min(number, MAX_CLIENTS)).astype(int)
  )


def is_wide(counts: np.ndarray) -> bool:
  return len(counts) > 2 * FEW


def describe_sizes(counts: np.ndarray) -> str:
  """Return 'a to b examples a client', and how many clients have none."""
  sizes = counts.sum(1)
  words = f'{sizes.min():,}'
  if sizes.min() < sizes.max():
    words += f' to {sizes.max():,}'
  none = int((sizes == 0).sum())
  return f'{words} examples a client' + (
    f' ({none:,} have none)' if none else ''
  )


def plot_partition(
  counts: np.ndarray, ids: Sequence[Any], largest: int
) -> Markup:
  """Draw examples [K, Y] as dots; a dot of full size is `largest` examples.

  A triangle below the axis is a client without any example.
  """
  places = shown_clients(len(counts))
  num_classes = counts.shape[1]
  width = WIDE if is_wide(counts) else NARROW
  across = (width - LEFT - RIGHT) / len(places)
  up = float(np.clip(300 / num_classes, 4, LARGEST))
  bottom = TOP + up * num_classes
  full = max(LEAST, 0.94 * min(across, up, LARGEST))
  parts = [text(0, 13, 'class', 'label')]
  for tick in _numbers(num_classes):
    y = bottom - up * (tick + 0.5)
    parts.append(line(LEFT, y, width - RIGHT, y, 'grid'))
    parts.append(text(LEFT - 8, y + 4, f'{tick}', 'end'))
  for tick in _numbers(len(places)):
    x = LEFT + across * (tick + 0.5)
    parts.append(text(x, bottom + 22, f'{ids[places[tick]]}', 'middle'))
  parts.append(text(width - RIGHT, bottom + 42, 'client', 'end', 'label'))
  for column, place in enumerate(places):
    x = LEFT + across * (column + 0.5)
    parts.append(
      _client(x, bottom, up, counts[place], ids[place], full / largest**0.5)
    )
  return drawing(width, bottom + BOTTOM, 'examples by client and class', *parts)


def _client(
  x: float, bottom: float, up: float, counts: np.ndarray, name: Any, unit: float
) -> Markup:
  """Draw a client as a column of dots, those of one size as one path."""
  classes = np.flatnonzero(counts)
  words = f'client {name}: {counts.sum():,} examples of {len(classes)} classes'
  if not len(classes):
    empty = marker('^', x, bottom + 6, 4)
    return tag('path', tag('title', words), d=empty, class_='empty')
  sizes: dict[str, list[int]] = {}
  for label in classes:
    size = max(SMALLEST, unit * float(counts[label]) ** 0.5)
    sizes.setdefault(short(size), []).append(label)
  columns = [
    dots([x] * len(labels), [bottom - up * (y + 0.5) for y in labels], size)
    for size, labels in sizes.items()
  ]
  return tag('g', tag('title', words), *columns)


def _numbers(length: int) -> list[int]:
  """Return which of 0 .. length - 1 are labelled on an axis."""
  if length <= FEW:
    return list(range(0, length, 1 if length <= 10 else 2))
  return [int(tick) for tick in ticks(0, length - 1, 8) if tick < length]

"""Elements of SVG, written as text.

Text stays text, and colours are CSS variables (`--c` is the colour of the
method whose class an element has), so that a chart has the colours of its page
in dark mode and in print. Everything that comes from a run is escaped here.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

LINE_WIDTH = 2.0  # dashes are in units of it
# Corners of markers: number of sides, and the angle of the first corner.
POLYGONS = {
  's': (4, 45),
  'D': (4, 0),
  'd': (4, 0),
  '^': (3, -90),
  'v': (3, 90),
  '<': (3, 180),
  '>': (3, 0),
  'p': (5, -90),
  'h': (6, -90),
  'H': (6, 0),
  '8': (8, 22.5),
}
PLUS = [(1, 3), (1, 1), (3, 1), (3, -1), (1, -1), (1, -3)]
PLUS = PLUS + [(-x, -y) for x, y in PLUS]


class Scale(NamedTuple):
  """A linear map from numbers to positions: low to start, high to end."""

  low: float
  high: float
  start: float
  end: float

  def __call__(self, value):
    share = (np.asarray(value, float) - self.low) / (self.high - self.low)
    return self.start + share * (self.end - self.start)


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
  """Return an element; `class_` is class, `stroke_width` stroke-width.

  >>> tag('text', 'a < b', x=1.0)
  Markup('<text x="1">a &lt; b</text>')
  """
  words = ''.join(
    f' {key.rstrip("_").replace("_", "-")}="{escape(short(value))}"'
    for key, value in attributes.items()
    if value is not None
  )
  inner = ''.join(escape(child) for child in children)
  return Markup(f'<{name}{words}>{inner}</{name}>')


def drawing(width: float, height: float, label: str, *children: Any) -> Markup:
  """Return an svg element with a label for screen readers."""
  return tag(
    'svg',
    *children,
    viewBox=f'0 0 {short(width)} {short(height)}',
    role='img',
    aria_label=label,
  )


def text(x: float, y: float, words: str, *classes: str) -> Markup:
  """Return text on the base line y; classes place it: 'middle', 'end'."""
  return tag('text', words, x=x, y=y, class_=' '.join(classes) or None)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
  """Return a straight line of a class of the style sheet."""
  return tag('path', d=f'M{_at(x1, y1)}L{_at(x2, y2)}', class_=kind)


def path_through(x: Sequence[float], y: Sequence[float]) -> str:
  """Return the data of a path through points; it is broken where y is NaN."""
  parts, pen = [], 'M'
  for one, other in zip(x, y, strict=True):
    if math.isfinite(other):
      parts.append(f'{pen}{_at(one, other)}')
    pen = 'L' if math.isfinite(other) else 'M'
  return ''.join(parts)


def dots(x: Iterable[float], y: Iterable[float], size: float) -> Markup:
  """Return round dots of one size as one path: ten bytes a dot."""
  data = ''.join(f'M{_at(*point)}h0' for point in zip(x, y, strict=True))
  return tag('path', d=data, class_='dots', stroke_width=size)


def marker(kind: str, x: float, y: float, size: float) -> str:
  """Return the path data of a marker of matplotlib."""
  if kind == 'o':
    arc = f'a{short(size)} {short(size)} 0 1 0 '
    across = short(2 * size)
    return f'M{_at(x - size, y)}{arc}{across} 0{arc}-{across} 0z'
  if kind in ('P', 'X'):
    turned = math.radians(45 if kind == 'X' else 0)
    corners = [
      (
        (a * math.cos(turned) - b * math.sin(turned)) / 2.7,
        (a * math.sin(turned) + b * math.cos(turned)) / 2.7,
      )
      for a, b in PLUS
    ]
  elif kind == '*':
    corners = _corners(10, -90, [1.35, 0.6])
  else:
    corners = _corners(*POLYGONS[kind], [1.2])
  thin = 0.6 if kind == 'd' else 1
  places = [_at(x + size * thin * a, y + size * b) for a, b in corners]
  return f'M{"L".join(places)}z'


def dash_array(dash: Any) -> str | None:
  """Return the SVG dash array of a matplotlib linestyle: '-', (0, (5, 2))."""
  if dash == '-':
    return None
  return ' '.join(short(LINE_WIDTH * length) for length in dash[1])


def enclosing(
  values: Iterable[np.ndarray], start: float, end: float, count: int = 5
) -> tuple[Scale, list[float]]:
  """Return a scale between round numbers around all values, and its ticks."""
  known = np.concatenate([np.ravel(value) for value in values])
  known = known[np.isfinite(known)]
  marks = ticks(float(known.min()), float(known.max()), count)
  return Scale(marks[0], marks[-1], start, end), marks


def levels(
  y: Scale, marks: Iterable[float], left: float, right: float, gap: float = 8
) -> list[Markup]:
  """Return a horizontal line for every tick of y, and its number."""
  parts = []
  for mark in marks:
    parts.append(line(left, y(mark), right, y(mark), 'grid'))
    parts.append(text(left - gap, y(mark) + 4, f'{mark:g}', 'end'))
  return parts


def signed(value: float) -> str:
  """Return the number of a tick of differences: '+5', '0', '-5'."""
  return f'{value:+g}'.replace('+0', '0')


def shape(x: Sequence[float], low: Sequence, high: Sequence) -> str:
  """Return the data of the closed path between two lines over the same x."""
  return f'{path_through([*x, *x[::-1]], [*low, *high[::-1]])}z'


def ticks(low: float, high: float, count: int = 5) -> list[float]:
  """Return about `count` round numbers that enclose low and high.

  >>> ticks(3.0, 98.0)
  [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
  """
  wide = (high - low) or abs(high) or 1.0
  rough = wide / count
  power = 10.0 ** math.floor(math.log10(rough))
  step = power * min(
    (1, 2, 5, 10), key=lambda step_size: abs(step_size * power - rough)
  )
  first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
  last = max(last, first + 1)
  return [round(step * number, 10) for number in range(first, last + 1)]


def plain(value: float, digits: int = 1) -> str:
  """Return a number with its decimals, or a dash where it is not finite."""
  return f'{value:.{digits}f}' if math.isfinite(value) else '–'


def short(value: Any) -> str:
  """Return a float with at most one decimal; other values as text."""
  if isinstance(value, float | np.floating):
    words = f'{value:.1f}'.removesuffix('.0')
    return '0' if words == '-0' else words
  return str(value)


def _corners(number: int, first: float, radii: Sequence[float]) -> list:
  angles = [
    math.radians(first + 360 * corner / number) for corner in range(number)
  ]
  return [
    (
      radii[corner % len(radii)] * math.cos(angle),
      radii[corner % len(radii)] * math.sin(angle),
    )
    for corner, angle in enumerate(angles)
  ]


def _at(x: float, y: float) -> str:
  return f'{short(float(x))} {short(float(y))}'

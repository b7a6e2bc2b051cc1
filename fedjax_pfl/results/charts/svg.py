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

PLUS = [(1, 3), (1, 1), (3, 1), (3, -1), (1, -1), (1, -3)]
PLUS = PLUS + [(-x, -y) for x, y in PLUS]


def _polygon(
  number: int, first: float, radii: Sequence[float] = (1.2,), thin: float = 1
) -> np.ndarray:
  """Return the corners of a polygon, from the one at the angle `first`."""
  angle = np.radians(first + 360 * np.arange(number) / number)
  radius = np.resize(radii, number)
  return np.stack([thin * radius * np.cos(angle), radius * np.sin(angle)], 1)


# Corners of markers of matplotlib, [N, 2].
CORNERS = {
  's': _polygon(4, 45),
  'D': _polygon(4, 0),
  'd': _polygon(4, 0, thin=0.6),
  '^': _polygon(3, -90),
  'v': _polygon(3, 90),
  '<': _polygon(3, 180),
  '>': _polygon(3, 0),
  'p': _polygon(5, -90),
  'h': _polygon(6, -90),
  'H': _polygon(6, 0),
  '8': _polygon(8, 22.5),
  '*': _polygon(10, -90, (1.35, 0.6)),
  'P': np.array(PLUS) / 2.7,
  'X': np.array(PLUS) @ [[1, 1], [-1, 1]] / 2.7 / 2**0.5,
}


class Scale(NamedTuple):
  """A linear map from numbers to positions: low to start, high to end."""

  low: float
  high: float
  start: float
  end: float

  def __call__(self, value):
    share = (np.asarray(value, float) - self.low) / (self.high - self.low)
    return self.start + share * (self.end - self.start)


class Key(NamedTuple):
  """A line of a legend, with the last of its numbers."""

  sample: Markup
  label: str
  value: str


class Panel(NamedTuple):
  """A chart with its title and caption, for the page and for a file."""

  title: str
  svg: Markup
  note: str = ''
  keys: tuple[Key, ...] = ()
  is_wide: bool = False
  css: str = ''  # of the method shown


class Section(NamedTuple):
  title: str
  text: str
  panels: Sequence[Panel]


def tag(name: str, *children: Any, title: str = '', **attributes) -> Markup:
  """Return an element; `class_` is class, `stroke_width` stroke-width.

  The title is its tooltip.

  >>> tag('text', 'a < b', x=1.0)
  Markup('<text x="1">a &lt; b</text>')
  """
  if title:
    children = tag('title', title), *children
  fields = ''.join(
    f' {key.rstrip("_").replace("_", "-")}="{escape(short(value))}"'
    for key, value in attributes.items()
    if value is not None
  )
  inner = ''.join(escape(child) for child in children)
  return Markup(f'<{name}{fields}>{inner}</{name}>')


def drawing(width: float, height: float, label: str, *children: Any) -> Markup:
  """Return an svg element with a label for screen readers."""
  box = f'0 0 {short(width)} {short(height)}'
  return tag('svg', *children, viewBox=box, role='img', aria_label=label)


def text(x: float, y: float, content: str, *classes: str) -> Markup:
  """Return text on the base line y; classes place it: 'middle', 'end'."""
  return tag('text', content, x=x, y=y, class_=' '.join(classes) or None)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
  """Return a straight line of a class of the style sheet."""
  return tag('path', d=f'M{_at(x1, y1)}L{_at(x2, y2)}', class_=kind)


def path_through(x: Sequence[float], y: Sequence[float]) -> str:
  """Return the data of a path through points; it is broken where y is NaN."""
  parts, pen = [], 'M'
  for across, height in zip(x, y, strict=True):
    if math.isfinite(height):
      parts.append(f'{pen}{_at(across, height)}')
    pen = 'L' if math.isfinite(height) else 'M'
  return ''.join(parts)


def dots(x: Iterable[float], y: Iterable[float], size: float) -> Markup:
  """Return round dots of one size as one path: ten bytes a dot."""
  data = ''.join(f'M{_at(*point)}h0' for point in zip(x, y, strict=True))
  return tag('path', d=data, class_='dots', stroke_width=size)


def cloud(x: np.ndarray, top: float, height: float) -> Markup:
  """Return dots below `top` that keep equal numbers apart."""
  return dots(x, top + height * (np.arange(len(x)) * 0.618 % 1), 4.4)


def marker(
  kind: str, x: float, y: float, size: float, css: str, title: str = ''
) -> Markup:
  """Return a marker of matplotlib, of a class of the style sheet."""
  if kind == 'o':
    arc = f'a{short(size)} {short(size)} 0 1 0 '
    across = short(2 * size)
    data = f'M{_at(x - size, y)}{arc}{across} 0{arc}-{across} 0z'
  else:
    corners = np.array([x, y]) + size * CORNERS[kind]
    data = f'M{"L".join(_at(*corner) for corner in corners)}z'
  return tag('path', title=title, d=data, class_=css)


def enclosing(
  values: Iterable[np.ndarray], start: float, end: float, count: int = 5
) -> tuple[Scale, list[float]]:
  """Return a scale between round numbers around all values, and its ticks."""
  known = np.concatenate([np.ravel(value) for value in values])
  known = known[np.isfinite(known)]
  marks = ticks(float(known.min()), float(known.max()), count)
  return Scale(marks[0], marks[-1], start, end), marks


def levels(
  scale: Scale,
  marks: Iterable[float],
  start: float,
  end: float,
  signed: bool = False,
  is_x: bool = False,
) -> list[Markup]:
  """Return a line from start to end for every tick, and its number.

  Lines are horizontal, with the number at the left; of x vertical, with the
  number below.
  """
  parts = []
  for mark in marks:
    at, (kind, label) = scale(mark), _tick(mark, signed)
    if is_x:
      parts.append(line(at, start, at, end, kind))
      parts.append(text(at, end + 18, label, 'middle'))
    else:
      parts.append(line(start, at, end, at, kind))
      parts.append(text(start - 8, at + 4, label, 'end'))
  return parts


def _tick(mark: float, signed: bool) -> tuple[str, str]:
  """Return the class of a tick's line and its number: '5', or '+5'."""
  if not signed:
    return 'grid', f'{mark:g}'
  return 'grid' if mark else 'axis', f'{mark:+g}' if mark else '0'


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
    (1, 2, 5, 10), key=lambda factor: abs(factor * power - rough)
  )
  first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
  last = max(last, first + 1)
  return [round(step * number, 10) for number in range(first, last + 1)]


def plain(value: float) -> str:
  """Return a number with a decimal, or a dash where it is not finite."""
  return f'{value:.1f}' if math.isfinite(value) else '–'


def short(value: Any) -> str:
  """Return a float with at most one decimal; other values as text."""
  if isinstance(value, float | np.floating):
    digits = f'{value:.1f}'.removesuffix('.0')
    return '0' if digits == '-0' else digits
  return str(value)


def _at(x: float, y: float) -> str:
  return f'{short(float(x))} {short(float(y))}'

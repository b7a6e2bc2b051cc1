"""Panels -> a matplotlib figure, for files: .png, .pdf, .svg.

The charts are the SVG of the page, drawn by the rules of its style sheet on
white ground: paths of straight lines and half circles, boxes and words. One
unit of a chart is a hundredth of an inch.
"""

import functools
import math
import pathlib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from fedjax_pfl.report.charts.panels import Panel
from fedjax_pfl.report.charts.svg import drawing, tag, text

SHEET = pathlib.Path(__file__).parents[1] / 'page' / 'page.css'
PAPER = {'--card': '#ffffff', '--ground': '#ffffff'}
GAP, LINE, CHARACTER = 34, 19, 6.7  # between panels; of a line of words
POINTS = 0.72  # in a unit
COMMAND = re.compile(r'([MLahz])([^MLahz]*)')


class Place(NamedTuple):
  """Where an element is drawn, and what it has from the elements around it."""

  axis: Any  # of matplotlib
  x: float
  y: float
  classes: frozenset[str]
  colours: Mapping[str, str]  # {css class of a line: colour}


def draw(
  title: str,
  panels: Sequence[Panel],
  colours: Mapping[str, str],
  columns: int = 3,
  notes: Sequence[str] = (),
):
  """Return a matplotlib Figure of panels side by side, with notes below.

  `colours` are {css class: colour}. No window, no global state.
  """
  rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
  sizes = [[_size(panel) for panel in row] for row in rows]
  width = max(sum(w + GAP for w, _ in row) for row in sizes) + GAP
  lines = [part for note in notes for part in _wrapped(note, width - 2 * GAP)]
  top = 58 if title else GAP
  heights = [max(h for _, h in row) + GAP for row in sizes]
  height = top + sum(heights) + LINE * len(lines)

  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure((width / 100, height / 100))
  axis = figure.add_axes((0, 0, 1, 1))
  axis.set_axis_off()
  axis.set(xlim=(0, width), ylim=(height, 0))
  place = Place(axis, 0, 0, frozenset(), colours)
  heading = {'size': 12, 'weight': 'bold', 'ha': 'center'}
  axis.text(width / 2, 34, title, **heading)
  y = top
  for row, wide, high in zip(rows, sizes, heights, strict=True):
    x = GAP
    for panel, (w, _) in zip(row, wide, strict=True):
      _panel(panel, w, place._replace(x=x, y=y))
      x += w + GAP
    y += high
  for line in lines:
    axis.text(GAP, y, line, size=12 * POINTS, color=_rules()[1]['--muted'])
    y += LINE
  return figure


def _size(panel: Panel) -> tuple[float, float]:
  """Return width and height of a panel with its words."""
  *_, width, height = _box(panel.svg)
  lines = (
    bool(panel.title)
    + len(_wrapped(panel.note, width))
    + len(_key_places(panel, width))
  )
  return width, height + LINE * lines + 14


def _box(svg: str) -> list[float]:
  root = re.search(r'viewBox="([^"]*)"', svg)
  return [float(number) for number in root[1].split()]


def _panel(panel: Panel, width: float, place: Place) -> None:
  """Draw title, note, chart and legend, one below the other."""
  words = [text(0, 12, panel.title, 'name')] if panel.title else []
  y = LINE if panel.title else 0
  for line in _wrapped(panel.note, width):
    words.append(text(0, y + 12, line))
    y += LINE
  y += 6
  _draw(drawing(width, y, '', *words), place)
  _draw(panel.svg, place._replace(y=place.y + y))
  y += _box(panel.svg)[3] + 8
  for line in _key_places(panel, width):
    for x, key in line:
      at = place._replace(x=place.x + x, y=place.y + y)
      _draw(key.sample, at)
      words = f'{key.label} {key.value}'.strip()
      _draw(tag('svg', text(40, 12, words, 'key')), at)
    y += LINE


def _key_places(panel: Panel, width: float) -> list[list[tuple[float, Any]]]:
  """Return the keys in lines, each with its place from the left."""
  lines: list[list[tuple[float, Any]]] = []
  x = math.inf
  for key in panel.keys:
    space = 60 + CHARACTER * len(f'{key.label} {key.value}')
    if x + space > width + 20:
      lines.append([])
      x = 0.0
    lines[-1].append((x, key))
    x += space
  return lines


def _wrapped(words: str, width: float) -> list[str]:
  return textwrap.wrap(words, max(20, int(width / CHARACTER))) if words else []


def _draw(svg: str, place: Place) -> None:
  """Draw an svg element."""
  _element(ElementTree.fromstring(svg), place)


def _element(element: ElementTree.Element, place: Place) -> None:
  own = element.get('class', '').split()
  place = place._replace(classes=place.classes | {*own})
  style = _style(element.tag, own, place)
  style |= {
    name: element.get(name)
    for name in ('opacity', 'stroke-width', 'stroke-dasharray')
    if element.get(name)
  }
  if element.tag == 'text':
    _text(element, style, place)
  elif 'dots' in own:
    _dots(element.get('d'), style, place)
  elif element.tag == 'path':
    _path(_parts(element.get('d')), style, place)
  elif element.tag == 'rect':
    x, y, width, height = (
      float(element.get(name)) for name in ('x', 'y', 'width', 'height')
    )
    corners = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]]
    _path([(np.array(corners), True)], style, place)
  for child in element:
    if child.tag != 'title':  # a tooltip
      _element(child, place)


def _text(
  element: ElementTree.Element, style: Mapping[str, str], place: Place
) -> None:
  from matplotlib import patheffects

  sides = {'end': 'right', 'middle': 'center'}
  drawn = place.axis.text(
    place.x + float(element.get('x')),
    place.y + float(element.get('y')),
    element.text or '',
    color=style['fill'],
    size=float(style['font-size'].removesuffix('px')) * POINTS,
    weight='bold' if 'font-weight' in style else 'normal',
    ha=sides.get(style.get('text-anchor'), 'left'),
    parse_math=False,
  )
  if 'paint-order' in style:  # words on a ground of their own
    width = float(style['stroke-width'].removesuffix('px')) * POINTS
    outline = patheffects.withStroke(
      linewidth=width, foreground=style['stroke']
    )
    drawn.set_path_effects([outline])


def _dots(data: str, style: Mapping[str, str], place: Place) -> None:
  points = np.array(re.findall(r'M(\S+) (\S+?)h0', data), float).reshape(-1, 2)
  place.axis.scatter(
    *(points + [place.x, place.y]).T,
    s=(float(style['stroke-width']) * POINTS) ** 2,
    color=style['stroke'],
    alpha=float(style.get('opacity', 1)),
    linewidths=0,
    zorder=2,  # in the order of the chart
  )


def _path(
  parts: Sequence[tuple[np.ndarray, bool]],
  style: Mapping[str, str],
  place: Place,
) -> None:
  """Draw the parts of a path, each (points, whether it is closed)."""
  from matplotlib.patches import PathPatch
  from matplotlib.path import Path

  paths = [
    Path(points + [place.x, place.y]) if not closed
    else Path([*(points + [place.x, place.y]), (0, 0)], closed=True)
    for points, closed in parts
  ]  # fmt: skip
  if not paths:
    return
  stroke = style.get('stroke', 'none')
  width = float(style.get('stroke-width', 1)) if stroke != 'none' else 0
  dash = style.get('stroke-dasharray')
  # Dashes of matplotlib are in units of the line's width.
  dashes = dash and (0, [float(one) / width for one in dash.split()])
  place.axis.add_patch(
    PathPatch(
      Path.make_compound_path(*paths),
      facecolor=style.get('fill', 'black'),
      edgecolor=stroke,
      linewidth=width * POINTS,
      linestyle=dashes or '-',
      alpha=float(style.get('opacity', 1)),
      capstyle='butt',
      zorder=2,
    )
  )


def _parts(data: str) -> Iterator[tuple[np.ndarray, bool]]:
  """Yield the points of every part of a path, and whether it is closed."""
  points: list[Sequence[float]] = []
  for command, words in COMMAND.findall(data):
    numbers = [float(word) for word in words.split()]
    if command == 'M' and points:
      yield np.array(points), False
    if command == 'M':
      points = [numbers]
    elif command == 'L':
      points.append(numbers)
    elif command == 'h':
      points.append([points[-1][0] + numbers[0], points[-1][1]])
    elif command == 'a':  # half a circle, against the clock
      x, y = points[-1]
      radius = numbers[5] / 2
      turn = np.linspace(math.pi, 0, 13)[1:]
      points += [
        [x + radius + radius * math.cos(one), y + radius * math.sin(one)]
        for one in turn
      ]
    else:
      yield np.array(points), True
      points = []
  if points:
    yield np.array(points), False


def _style(name: str, own: Sequence[str], place: Place) -> dict[str, str]:
  """Return the style of an element by the style sheet."""
  rules, variables = _rules()
  colour = next(
    (place.colours[one] for one in place.classes if one in place.colours), None
  )
  variables = {**variables, **({'--c': colour} if colour else {})}
  style: dict[str, str] = {}
  for above, last, values in rules:
    if (last in own or last == name) and above <= place.classes:
      style |= values
  return {key: _value(value, variables) for key, value in style.items()}


def _value(value: str, variables: Mapping[str, str]) -> str:
  """Return a value of the style sheet with the values of its variables."""
  found = re.fullmatch(r'var\((--\w+)(?:, (.*))?\)', value)
  if not found:
    return value
  if found[1] in variables:
    return variables[found[1]]
  return _value(found[2] or 'none', variables)


@functools.cache
def _rules() -> tuple[list, dict[str, str]]:
  """Return (classes above, class or tag, values) of all rules; variables."""
  sheet = re.sub(r'/\*.*?\*/', '', SHEET.read_text('utf-8'), flags=re.S)
  sheet = re.sub(r'@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}', '', sheet)
  rules, variables = [], {}
  for selectors, body in re.findall(r'([^{}]+)\{([^{}]*)\}', sheet):
    values = {
      key.strip(): value.strip()
      for key, _, value in (one.partition(':') for one in body.split(';'))
      if value
    }
    if selectors.strip() == ':root':
      variables |= values
    for selector in selectors.split(','):
      *above, last = selector.split() or ['']
      if re.fullmatch(r'\.\w+|text', last):
        names = {one.lstrip('.') for one in above} - {'svg'}
        rules.append((names, last.lstrip('.'), values))
  return rules, variables | PAPER

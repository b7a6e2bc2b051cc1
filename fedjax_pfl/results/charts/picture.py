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
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, fromstring

import numpy as np

from fedjax_pfl.results.charts.svg import Panel, drawing, tag, text

SHEET = pathlib.Path(__file__).parents[1] / 'page' / 'page.css'
PAPER = {'--card': '#ffffff', '--ground': '#ffffff'}
GAP, LINE, CHARACTER = 34, 19, 6.7  # between panels; of a line of words
POINTS = 0.72  # in a unit
COLUMNS = 2
COMMAND = re.compile(r'([MLahz])([^MLahz]*)')
VARIABLE = re.compile(r'var\((--\w+)(?:, ([^()]*))?\)')
BOX = 'x', 'y', 'width', 'height'
SIDES = {'end': 'right', 'middle': 'center'}
TURN = np.linspace(math.pi, 0, 13)[1:]  # of half a circle
HALF_CIRCLE = np.stack([np.cos(TURN), np.sin(TURN)], 1)  # against the clock

Style = Mapping[str, str]  # of CSS
Piece = tuple[float, float, str]  # x, y and SVG


class Context(NamedTuple):
  """Where an element is drawn, and what it has from the elements around it."""

  axis: Any  # of matplotlib
  corner: np.ndarray
  colours: Mapping[str, str]  # {css class of a line: colour}
  classes: frozenset[str] = frozenset()
  colour: str | None = None  # of the line


def draw(
  title: str,
  panels: Sequence[Panel],
  colours: Mapping[str, str],
  notes: Sequence[str] = (),
):
  """Return a matplotlib Figure of panels, two in a row, with notes below.

  `colours` are {css class: colour}. No window, no global state.
  """
  pieces, width, y = [], 0.0, 58.0 if title else GAP
  for at in range(0, len(panels), COLUMNS):
    x, height = GAP, 0.0
    for panel in panels[at : at + COLUMNS]:
      parts, wide, high = _pieces(panel)
      pieces += [(x + left, y + top, svg) for left, top, svg in parts]
      x, height = x + wide + GAP, max(height, high)
    y, width = y + height + GAP, max(width, x)
  for note in notes:
    for line in _wrapped(note, width - 2 * GAP):
      pieces.append((GAP, y, tag('svg', text(0, 0, line))))
      y += LINE

  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure((width / 100, y / 100))
  axis = figure.add_axes((0, 0, 1, 1))
  axis.set_axis_off()
  axis.set(xlim=(0, width), ylim=(y, 0))
  axis.text(width / 2, 34, title, size=12, weight='bold', ha='center')
  for left, top, svg in pieces:
    context = Context(axis, np.array([left, top]), colours)
    _draw(fromstring(svg), context)
  return figure


def _pieces(panel: Panel) -> tuple[list[Piece], float, float]:
  """Return title, note and chart, one below the other.

  Also the width and the height of all.
  """
  box = re.search(r'viewBox="0 0 (\S+) (\S+)"', panel.svg)
  width, height = float(box[1]), float(box[2])
  lines = [text(0, 12, panel.title, 'name')] if panel.title else []
  for line in _wrapped(panel.note, width):
    lines.append(text(0, LINE * len(lines) + 12, line))
  y = LINE * len(lines) + 6
  pieces = [(0, 0, drawing(width, y, '', *lines)), (0, y, panel.svg)]
  return pieces, width, y + height + 8


def _wrapped(note: str, width: float) -> list[str]:
  return textwrap.wrap(note, max(20, int(width / CHARACTER)))


def _draw(element: Element, context: Context) -> None:
  """Draw an element with all that is in it."""
  names = element.get('class', '').split()
  colours = [context.colours[name] for name in names if name in context.colours]
  colour = colours[0] if colours else context.colour
  context = context._replace(classes=context.classes | {*names}, colour=colour)
  style = _style({element.tag, *names}, context)
  for name in ('opacity', 'stroke-width'):
    style[name] = element.get(name, style.get(name))
  if element.tag == 'text':
    _draw_text(element, style, context)
  elif 'dots' in names:
    _draw_dots(element.get('d'), style, context)
  elif element.tag == 'path':
    _draw_path(element.get('d'), style, context)
  elif element.tag == 'rect':
    x, y, w, h = (float(element.get(name)) for name in BOX)
    data = f'M{x} {y}L{x + w} {y}L{x + w} {y + h}L{x} {y + h}z'
    _draw_path(data, style, context)
  for child in element:
    if child.tag != 'title':  # a tooltip
      _draw(child, context)


def _draw_text(element: Element, style: Style, context: Context) -> None:
  from matplotlib import patheffects

  at = context.corner + [float(element.get('x')), float(element.get('y'))]
  drawn = context.axis.text(
    *at,
    element.text or '',
    color=style['fill'],
    size=float(style['font-size'].removesuffix('px')) * POINTS,
    weight='bold' if 'font-weight' in style else 'normal',
    ha=SIDES.get(style.get('text-anchor'), 'left'),
    parse_math=False,
  )
  if 'paint-order' in style:  # words on a ground of their own
    width = float(style['stroke-width'].removesuffix('px')) * POINTS
    ground = patheffects.withStroke(linewidth=width, foreground=style['stroke'])
    drawn.set_path_effects([ground])


def _draw_dots(data: str, style: Style, context: Context) -> None:
  points = np.array(re.findall(r'M(\S+) (\S+?)h0', data), float).reshape(-1, 2)
  context.axis.scatter(
    *(points + context.corner).T,
    s=(float(style['stroke-width']) * POINTS) ** 2,
    color=style['stroke'],
    alpha=float(style['opacity'] or 1),
    linewidths=0,
    zorder=2,  # in the order of the chart
  )


def _draw_path(data: str, style: Style, context: Context) -> None:
  from matplotlib.patches import PathPatch
  from matplotlib.path import Path

  points, codes = np.zeros((1, 2)), []
  for command, digits in COMMAND.findall(data):
    numbers = [float(word) for word in digits.split()]
    added = points[-1:]
    if command in 'ML':
      added = [numbers]
    elif command == 'h':
      added = added + [numbers[0], 0]
    elif command == 'a':
      radius = numbers[5] / 2
      added = added + [radius, 0] + radius * HALF_CIRCLE
    code = {'M': Path.MOVETO, 'z': Path.CLOSEPOLY}.get(command, Path.LINETO)
    points = np.concatenate([points, added])
    codes += [code] * len(added)
  if not codes:
    return
  stroke = style.get('stroke', 'none')
  width = float(style['stroke-width'] or 1) if stroke != 'none' else 0
  patch = PathPatch(
    Path(points[1:] + context.corner, codes),
    facecolor=style.get('fill', 'black'),
    edgecolor=stroke,
    linewidth=width * POINTS,
    alpha=float(style['opacity'] or 1),
    capstyle='butt',
    zorder=2,
  )
  context.axis.add_patch(patch)


def _style(names: set[str], context: Context) -> dict[str, str]:
  """Return the style by the style sheet of an element with these names."""
  rules, variables = _rules()
  variables = {**variables, **PAPER}
  if context.colour:
    variables['--c'] = context.colour
  style: dict[str, str] = {}
  for (*above, last), values in rules:
    if last in names and {*above} <= context.classes | {'svg'}:
      style |= values

  def known(match: re.Match) -> str:
    return variables.get(match[1], match[2] or 'none')

  # Twice: a variable may have another one as its default.
  return {
    key: VARIABLE.sub(known, VARIABLE.sub(known, value))
    for key, value in style.items()
  }


@functools.cache
def _rules() -> tuple[list[tuple[list[str], dict]], dict[str, str]]:
  """Return (names from outside in, values) of all rules; the variables."""
  sheet = re.sub(r'/\*.*?\*/', '', SHEET.read_text('utf-8'), flags=re.S)
  sheet = re.sub(r'@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}', '', sheet)
  rules, variables = [], {}
  for selectors, body in re.findall(r'([^{}]+)\{([^{}]*)\}', sheet):
    values = dict(re.findall(r'([\w-]+):\s*([^;]+);', body))
    for selector in selectors.split(','):
      names = [name.lstrip('.') for name in selector.split()]
      rules += [(names, values)] * bool(names)
    if selectors.strip() == ':root':
      variables |= values
  return rules, variables

"""Colour and line style of each method, the same in all figures.

Colours are from Okabe and Ito (2008) and Paul Tol's schemes, for colour-blind
readers. They are assigned so that methods compared in one paper stay apart
(CIELAB distance over 17 for normal sight, protanopia and deuteranopia); lines
also differ in dash and marker. The colours for a dark background have the same
distances and a contrast of at least 4.
"""

import zlib
from typing import NamedTuple

from fedjax_pfl.algorithms import available
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.results.runs.groups import Group


class Style(NamedTuple):
  colour: str  # on white
  dark: str  # on a dark background, of the same hue
  dash: tuple[float, ...]  # strokes and gaps, in widths of a line
  marker: str


SOLID = ()
DASHED = (5, 1.5)
DOTTED = (1, 1.2)
DASHDOT = (5, 1.2, 1, 1.2)
LONG = (9, 2)
DOUBLE = (5, 1.2, 1, 1.2, 1, 1.2)

STYLES = {
  'fedavg': Style('#0072B2', '#317DBA', SOLID, 'o'),
  'fedbabu': Style('#D55E00', '#E47433', DASHED, 's'),
  'fedprox': Style('#661100', '#C0583E', DASHDOT, '^'),
  'fedper': Style('#44AA99', '#1BAAA5', DOTTED, 'D'),
  'lg_fedavg': Style('#DDCC77', '#E3D27F', DASHDOT, 'v'),
  'fedrep': Style('#117733', '#5FAD6E', LONG, 'P'),
  'per_fedavg': Style('#332288', '#8161DF', DOTTED, '<'),
  'ditto': Style('#56B4E9', '#5DB9ED', DASHED, '>'),
  'pfedme': Style('#CC79A7', '#DE8CB9', DOUBLE, 'h'),
  'local_only': Style('#AA3377', '#C34F77', DOUBLE, 'X'),
  'centralized': Style('#000000', '#E9E9E9', LONG, '*'),
  'superfed': Style('#009E73', '#25B385', SOLID, 'p'),
  'apfl': Style('#EE7733', '#F97828', DASHED, 'd'),
  'fedconcat': Style('#CC3311', '#DD3D15', SOLID, 'H'),
  'scaffold': Style('#882255', '#C24D88', DASHED, '8'),
  'moon': Style('#E69F00', '#ECA410', DASHDOT, '^'),
  'fedrs': Style('#88CCEE', '#8BCEF0', LONG, 'v'),
  'fedlc': Style('#CC6677', '#C7596C', DOTTED, 'D'),
}
# The others have these colours again, in turn, with other markers. The order
# keeps methods of clients with different models apart; a new one goes last.
UNLISTED = (
  'fd fedproto fml cfl fedala fedamp fedkd fedas fedgen fedbn fedcp feddbe '
  'feddyn fedfomo fednova fedgh fedtgp fedntd fedopt fedpac fedrod gpfl ifca '
  'knn_per partial pfedgraph pfedhn'
)
SPARE_DASHES = (DASHDOT, LONG, DOUBLE, DOTTED)


def style_of(algorithm: str) -> Style:
  """Return the style of a method; one that is not listed has a fixed one, too.

  A method of the user's own, 'nap.py:fednap#4f0c8e21ab37', is 'fednap'.
  """
  if algorithm in STYLES:
    return STYLES[algorithm]
  name = without_digest(algorithm).rpartition('.py:')[2]
  others = UNLISTED.split()
  others += [new for new in available() if new not in {*STYLES, *others}]
  listed, marker = list(STYLES.values()), 'X'
  if name in others:  # no two methods have one colour and one marker
    number = turn = others.index(name)
    shift = 7 + number // len(listed)
    marker = listed[(number + shift) % len(listed)].marker
  else:
    number = zlib.crc32(name.encode())  # hash() differs between processes
    turn = number // 32
  like = listed[number % len(listed)]
  dash = SPARE_DASHES[turn % len(SPARE_DASHES)]
  return Style(like.colour, like.dark, dash, marker)


def style_of_group(group: Group) -> Style:
  """Return the style of a group; later ones of a method differ in dash."""
  style = style_of(group.first.method)
  if not group.setting_number:
    return style
  dashes = *SPARE_DASHES, SOLID, DASHED
  spare = [dash for dash in dashes if dash != style.dash]
  return style._replace(dash=spare[(group.setting_number - 1) % len(spare)])


def css_of(group: Group) -> str:
  """Return the class that has the colour of the group's method."""
  return f'c{group.method_number}'

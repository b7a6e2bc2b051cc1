"""What a method is called and how it looks: the same in every table and figure.

Colours are from Okabe and Ito (2008) and Paul Tol's schemes, made for readers
who see red and green alike. They were dealt out so that methods compared in
one paper stay apart (CIELAB distance over 17 for normal sight, protanopia and
deuteranopia); lines also differ in dash and marker. The companions on dark
ground were searched for at the same distances and a contrast of at least 4.
"""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple


class Look(NamedTuple):
  name: str  # as its paper writes it
  colour: str  # on white
  dark: str  # its companion on dark ground, of the same hue
  dash: Any  # what matplotlib calls a linestyle
  marker: str


SOLID = '-'
DASHED = (0, (5, 1.5))
DOTTED = (0, (1, 1.2))
DASHDOT = (0, (5, 1.2, 1, 1.2))
LONG = (0, (9, 2))
DOUBLE = (0, (5, 1.2, 1, 1.2, 1, 1.2))

LOOKS = {
  'fedavg': Look('FedAvg', '#0072B2', '#317DBA', SOLID, 'o'),
  'fedbabu': Look('FedBABU', '#D55E00', '#E47433', DASHED, 's'),
  'fedprox': Look('FedProx', '#661100', '#C0583E', DASHDOT, '^'),
  'fedper': Look('FedPer', '#44AA99', '#1BAAA5', DOTTED, 'D'),
  'lg_fedavg': Look('LG-FedAvg', '#DDCC77', '#E3D27F', DASHDOT, 'v'),
  'fedrep': Look('FedRep', '#117733', '#5FAD6E', LONG, 'P'),
  'per_fedavg': Look('Per-FedAvg', '#332288', '#8161DF', DOTTED, '<'),
  'ditto': Look('Ditto', '#56B4E9', '#5DB9ED', DASHED, '>'),
  'pfedme': Look('pFedMe', '#CC79A7', '#DE8CB9', DOUBLE, 'h'),
  'local_only': Look('Local only', '#AA3377', '#C34F77', DOUBLE, 'X'),
  'centralized': Look('Centralized', '#000000', '#E9E9E9', LONG, '*'),
  'superfed': Look('SuPerFed', '#009E73', '#25B385', SOLID, 'p'),
  'apfl': Look('APFL', '#EE7733', '#F97828', DASHED, 'd'),
  'fedconcat': Look('FedConcat', '#CC3311', '#DD3D15', SOLID, 'H'),
  'scaffold': Look('SCAFFOLD', '#882255', '#C24D88', DASHED, '8'),
  'moon': Look('MOON', '#E69F00', '#ECA410', DASHDOT, '^'),
  'fedrs': Look('FedRS', '#88CCEE', '#8BCEF0', LONG, 'v'),
  'fedlc': Look('FedLC', '#CC6677', '#C7596C', DOTTED, 'D'),
}
SPARE_DASHES = (DASHDOT, LONG, DOUBLE, DOTTED)


def look(algorithm: str) -> Look:
  """Return the look of a method; one not listed always gets the same, too.

  'fedavg (run_2)' is FedAvg's second line in one figure: another dash.
  """
  if algorithm in LOOKS:
    return LOOKS[algorithm]
  method, bracket, rest = algorithm.partition(' (')
  if bracket and method in LOOKS:
    first = LOOKS[method]
    dash = SPARE_DASHES[zlib.crc32(rest.encode()) % len(SPARE_DASHES)]
    return first._replace(name=f'{first.name} ({rest}', dash=dash)
  number = zlib.crc32(algorithm.encode())  # hash() differs between processes
  twin = list(LOOKS.values())[number % len(LOOKS)]
  return Look(
    name=algorithm,
    colour=twin.colour,
    dark=twin.dark,
    dash=SPARE_DASHES[number // 32 % len(SPARE_DASHES)],
    marker='X',
  )


def variants(labels: Sequence[str]) -> dict[str, Look]:
  """Return looks of things that are no methods, told apart in one figure.

  Classes, or runs of one method that differ in a setting: dealt out in order.
  """
  colours = [(one.colour, one.dark) for one in LOOKS.values()]
  markers = [one.marker for one in LOOKS.values()]
  dashes = (SOLID, *SPARE_DASHES, DASHED)
  return {
    label: Look(
      label,
      *colours[number % len(colours)],
      dashes[number % len(dashes)],
      # Where colours begin anew, markers are others.
      markers[(number + number // len(colours)) % len(markers)],
    )
    for number, label in enumerate(labels)
  }


def display_name(algorithm: str) -> str:
  return look(algorithm).name

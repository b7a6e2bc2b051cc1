"""The file of claims: what the papers say, as comparisons of their cells.

  [[claims]]
  name = 'a'
  title = 'FedBABU against other methods'
  sentence = 'FedBABU personalises better than other methods'
  next = 'what would explain a difference from print'  # may be left out
  table = 'fedbabu/13'
  where = 'shards_per_client=5,client_fraction=0.1,local_epochs=10'

  [[claims.comparisons]]
  above = 'algorithm=fedbabu'
  below = 'algorithm=fedavg'

A comparison is the number of one cell less that of another; the claim is that
it is above 0. `table` and `where` are fields of the claim or of a comparison;
`where` with `above`, and with `below`, chooses one cell. Other fields:

  sentence              by default 'FedBABU > FedAvg'
  more_at, less_at      conditions: the difference is larger at one than at the
                        other, so that four cells are compared
  above_view, below_view   views that are read in the place of what is printed,
                        of which print has no number; 'mix:best' is the view of
                        the family with the best mean over clients by TEST
                        accuracy
"""

import pathlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.report.styles import STYLES, display_name
from fedjax_pfl.reproduction.cells import Cell, Figure, Reading, Table
from fedjax_pfl.reproduction.planning.cell_filter import filter_cells

# Rows of the papers' tables that are not names of methods.
VARIANTS = {
  'superfed_mm': 'SuPerFed-MM',
  'superfed_lm': 'SuPerFed-LM',
  'fedconcat_id': 'FedConcat-ID',
  'partial_update': 'Partial update',
}
LoadTable = Callable[[str], Table | Figure]


class Term(NamedTuple):
  """A cell of a comparison, and whether it is added or subtracted."""

  sign: int  # 1 or -1
  cell: Cell
  table: str
  where: str  # the conditions by which it was chosen
  is_printed: bool = True  # False: another view is read

  @property
  def name(self) -> str:
    """Return the name of the method, as its paper writes it."""
    name = self.cell.published.algorithm
    return display_name(name) if name in STYLES else VARIANTS.get(name, name)


class Comparison(NamedTuple):
  """A sum of signed cells that is above 0, if the claim is true."""

  sentence: str
  terms: tuple[Term, ...]
  commands: tuple[tuple[str, str], ...]  # table and conditions: what gives it


class Claim(NamedTuple):
  name: str
  title: str  # a few words
  sentence: str
  next: str
  comparisons: tuple[Comparison, ...]


SHARED = ('table', 'where')
REQUIRED = {
  'table': "a table, such as 'fedbabu/13'",
  'where': "fields and values, such as 'shards_per_client=5'",
  'above': "what chooses the higher cell, such as 'algorithm=fedbabu'",
  'below': "what chooses the lower cell, such as 'algorithm=fedavg'",
}
PAIRS = (('more_at', 'less_at'), ('above_view', 'below_view'))
FIELDS = (*REQUIRED, 'sentence', *PAIRS[0], *PAIRS[1])
OF_CLAIM = ('name', 'title', 'sentence', 'next', 'comparisons', *SHARED)


def load_claims(path: pathlib.Path, load_table: LoadTable) -> list[Claim]:
  """Return the claims of a file; refuse it as a whole if a part is wrong."""
  content = _read(path)
  listed = content.get('claims')
  if content.keys() != {'claims'} or not isinstance(listed, list):
    raise _bad(str(path), sorted(content), '[[claims]] and nothing else')
  claims = []
  for number, given in enumerate(listed, start=1):
    try:
      claims.append(_claim(given, load_table))
    except BadInput as error:
      raise BadInput(f'{path}, [[claims]] {number}: {error}') from error
  names = [claim.name for claim in claims]
  for name in names:
    if names.count(name) > 1:
      raise _bad(str(path), f'{name} twice', 'a name for each claim')
  return claims


def _read(path: pathlib.Path) -> dict[str, Any]:
  try:
    return tomllib.loads(path.read_bytes().decode())
  except OSError as error:
    got = f'no file ({error.strerror})'.lower()
    raise _bad(str(path), got, 'a file of claims') from error
  except ValueError as error:  # of TOML, or of UTF-8
    raise _bad(str(path), str(error), 'a file in TOML') from error


def _claim(given: Any, load_table: LoadTable) -> Claim:
  _check_fields(given, OF_CLAIM, ('name', 'title', 'sentence', 'comparisons'))
  listed = given['comparisons']
  if not isinstance(listed, list) or not listed:
    raise _bad('comparisons', listed, 'one or more [[claims.comparisons]]')
  shared = {name: given[name] for name in SHARED if name in given}
  comparisons = []
  for number, one in enumerate(listed, start=1):
    try:
      _check_fields(one, FIELDS, ())
      comparisons.append(_comparison({**shared, **one}, load_table))
    except BadInput as error:
      raise BadInput(f'comparison {number}: {error}') from error
  return Claim(
    name=given['name'],
    title=given['title'],
    sentence=given['sentence'],
    next=given.get('next', ''),
    comparisons=tuple(comparisons),
  )


def _comparison(fields: Mapping[str, str], load_table: LoadTable) -> Comparison:
  for name, expected in REQUIRED.items():
    if name not in fields:
      raise _bad(name, 'nothing', expected, FIELDS)
  for one, other in PAIRS:
    if (one in fields) != (other in fields):
      raise _bad(one, 'one of two fields', f'{one} and {other}, or neither')
  table = load_table(fields['table'])
  if isinstance(table, Figure):
    raise _bad('table', table.name, 'a table; figures have no cells')
  places = [(1, fields['where'])]
  if 'more_at' in fields:
    places = [
      (1, f'{fields["where"]},{fields["more_at"]}'),
      (-1, f'{fields["where"]},{fields["less_at"]}'),
    ]
  terms = [
    _term(sign * side, table, f'{where},{fields[name]}', fields, name)
    for sign, where in places
    for side, name in ((1, 'above'), (-1, 'below'))
  ]
  sentence = fields.get('sentence', f'{terms[0].name} > {terms[1].name}')
  commands = tuple((table.name, where) for _, where in places)
  return Comparison(sentence, tuple(terms), commands)


def _term(
  sign: int, table: Table, where: str, fields: Mapping[str, str], name: str
) -> Term:
  cells = filter_cells(table.cells, where)
  if len(cells) != 1:
    raise _bad(
      'where',
      f'{where}, which {len(cells)} cells of {table.name} match',
      'conditions that one cell matches',
      [f'a value of {field}' for field in _varied(cells)],
    )
  view = fields.get(f'{name}_view')
  cell = cells[0]
  if view is not None:
    cell = cell._replace(reading=Reading(view))
  return Term(sign, cell, table.name, where, view is None)


def _varied(cells: Sequence[Cell]) -> list[str]:
  """Return the fields in which cells differ."""
  rows = [
    {**cell.published._asdict(), **cell.published.variant} for cell in cells
  ]
  unequal = (
    name
    for name in rows[0]
    if any(row.get(name) != rows[0][name] for row in rows)
  )
  return [name for name in unequal if name not in ('mean', 'std', 'variant')]


def _check_fields(
  given: Any, known: Sequence[str], required: Sequence[str]
) -> None:
  if not isinstance(given, dict):
    raise _bad('entry', given, 'fields and their values', known)
  for name in given.keys() - {*known}:
    raise _bad('field', name, 'a field of an entry', known)
  for name in required:
    if name not in given:
      raise _bad('field', f'no {name}', 'all that an entry needs', required)
  for name, value in given.items():
    if name != 'comparisons' and not (isinstance(value, str) and value.strip()):
      raise _bad(name, value, 'a text')


def _bad(name: str, got: Any, expected: str, choices: Any = None) -> BadInput:
  return bad_input(
    name,
    got=got,
    expected=expected,
    choices=choices,
    cause='a typing error, or a file of another version',
  )

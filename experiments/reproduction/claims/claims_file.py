"""The file of claims: what the papers say, as comparisons of their cells.

  [[claims]]
  name = 'a'
  title = 'FedBABU against other methods'
  sentence = 'FedBABU personalises better than other methods'
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
  unlike                why the published views are not like with like
  above_like, below_like   with `unlike`, views that are; without them no run
                        stored such views

A mistake is a sentence that begins with the file and the number of the entry.
"""

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from experiments.reproduction.cells import (
  Cell,
  Reading,
  Table,
  filter_cells,
  values_of,
)
from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core.errors import BadInput, bad_input

LoadTable = Callable[[str], Table]
Made = TypeVar('Made')
# Rows of the papers' tables that are not names of methods.
VARIANTS = {
  'superfed_mm': 'SuPerFed-MM',
  'superfed_lm': 'SuPerFed-LM',
  'fedconcat_id': 'FedConcat-ID',
  'partial_update': 'Partial update',
}


class Term(NamedTuple):
  """A cell of a comparison, and whether it is added or subtracted."""

  sign: int  # 1 or -1
  cell: Cell

  @property
  def is_printed(self) -> bool:
    return self.cell.published.mean is not None

  @property
  def name(self) -> str:
    """Return the name of the method, as its paper writes it."""
    name = self.cell.published.algorithm
    return VARIANTS.get(name) or paper_name(name)


class Comparison(NamedTuple):
  """A sum of signed cells that is above 0, if the claim is true."""

  sentence: str
  terms: tuple[Term, ...]
  commands: tuple[tuple[str, str], ...]  # table and conditions: what gives it
  unlike: str = ''  # why the views are not like with like
  like: tuple[Term, ...] = ()  # with views that are; (): not stored, or alike


class Claim(NamedTuple):
  name: str
  title: str  # a few words
  sentence: str
  comparisons: tuple[Comparison, ...]


SHARED = ('table', 'where')
PAIRS = (
  *(('more_at', 'less_at'), ('above_view', 'below_view')),
  ('above_like', 'below_like'),
)


def load_claims(path: Path, load_table: LoadTable) -> list[Claim]:
  """Return the claims of a file; refuse it as a whole if a part is wrong."""
  content = read_toml(path)
  if content.keys() != {'claims'}:
    raise wrong(str(path), sorted(content), '[[claims]] and nothing else')
  listed = content['claims']
  claims = make_each(str(path), 'claims', listed, _claim, load_table)
  names = [claim.name for claim in claims]
  for name in names:
    if names.count(name) > 1:
      raise wrong(str(path), f'{name} twice', 'a name for each claim')
  return claims


def _claim(given: Any, load_table: LoadTable) -> Claim:
  names = ('name', 'title', 'sentence', 'comparisons')
  check_fields(given, names, SHARED)
  shared = {name: given[name] for name in SHARED if name in given}
  required = ['above', 'below', *(one for one in SHARED if one not in shared)]
  optional = ('sentence', 'unlike', *itertools.chain(*PAIRS), *shared)

  def make(fields):
    check_fields(fields, required, optional)
    return _comparison({**shared, **fields}, load_table)

  comparisons = make_each('', 'claims.comparisons', given['comparisons'], make)
  texts = [given.get(name, '') for name in Claim._fields[:-1]]
  return Claim(*texts, tuple(comparisons))


def _comparison(fields: Mapping[str, str], load_table: LoadTable) -> Comparison:
  for one, other in PAIRS:
    if (one in fields) != (other in fields):
      raise wrong(one, 'one of two fields', f'{one} and {other}, or neither')
  table, where = fields['table'], fields['where']
  places = [(1, where)]
  if 'more_at' in fields:
    more, less = (f'{where},{fields[name]}' for name in PAIRS[0])
    places = [(1, more), (-1, less)]

  def make(kind):
    return tuple(
      _term(sign * side, load_table, table, f'{where},{fields[name]}', view)
      for sign, where in places
      for side, name in ((1, 'above'), (-1, 'below'))
      for view in [fields.get(f'{name}_{kind}')]
    )

  terms, unlike = make('view'), fields.get('unlike', '')
  like = make('like') if 'above_like' in fields else ()
  if like and not unlike:
    raise wrong('above_like', 'no unlike', 'unlike: why the views differ')
  sentence = fields.get('sentence', f'{terms[0].name} > {terms[1].name}')
  commands = tuple((table, where) for _, where in places)
  return Comparison(sentence, terms, commands, unlike, like)


def _term(
  sign: int, load_table: LoadTable, name: str, where: str, view: str | None
) -> Term:
  table = load_table(name)
  cells = filter_cells(table.cells, where)
  if len(cells) != 1:
    found = values_of(cells).items()
    varied = [f'a value of {name}' for name, own in found if len(own) > 1]
    got = f'{where}, which {len(cells)} cells of {table.name} match'
    raise wrong('where', got, 'conditions that one cell matches', varied)
  cell = cells[0]
  if view is not None:  # of which print has no number
    printed = cell.published._replace(mean=None)
    cell = cell._replace(published=printed, reading=Reading(view))
  return Term(sign, cell)


# ---- The entries of the file -------------------------------------------------


def read_toml(path: Path) -> dict[str, Any]:
  try:
    return tomllib.loads(path.read_bytes().decode())
  except OSError as error:
    got = f'no file ({error.strerror})'.lower()
  except ValueError as error:  # of TOML, or of UTF-8
    got = str(error)
  raise wrong(str(path), got, 'a file in TOML')


def make_each(
  place: str, name: str, listed: Any, make: Callable[..., Made], *given: Any
) -> list[Made]:
  """Return make(entry, *given) of each entry; its errors say of which."""
  if not isinstance(listed, list) or not listed:
    raise wrong(place or name, listed, f'one or more [[{name}]]')
  made = []
  for number, entry in enumerate(listed, start=1):
    try:
      made.append(make(entry, *given))
    except BadInput as error:
      where = ', '.join(filter(None, (place, f'[[{name}]] {number}')))
      raise BadInput(f'{where}: {error}') from error
  return made


def check_fields(
  given: Any, required: Sequence[str], optional: Sequence[str] = ()
) -> None:
  """Refuse an entry with other fields, without one, or with a wrong value."""
  names = [*required, *optional]
  if not isinstance(given, dict):
    raise wrong('entry', given, 'fields and their values', names)
  for name in given.keys() - {*names}:
    raise wrong('field', name, 'a field of an entry', names)
  for name in names:
    value, expected = given.get(name), 'a text'
    is_valid = isinstance(value, str) and bool(value.strip())
    if name == 'comparisons':  # the one field that is no text
      is_valid, expected = bool(value), 'one or more [[claims.comparisons]]'
    if name in given and not is_valid:
      raise wrong(name, value, expected)
    if name not in given and name in required:
      raise wrong('field', f'no {name}', expected, names)


def wrong(name: str, got: Any, expected: str, choices: Any = None) -> BadInput:
  cause = 'a typing error, or a file of another version'
  return bad_input(
    name, got=got, expected=expected, choices=choices, cause=cause
  )

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

A mistake is a sentence that begins with the file and the number of the claim.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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


class Stated(NamedTuple):
  """A comparison as it is written, with the fields of its claim."""

  table: str
  where: str
  above: str
  below: str
  sentence: str = ''
  more_at: str = ''
  less_at: str = ''
  above_view: str = ''
  below_view: str = ''
  unlike: str = ''
  above_like: str = ''
  below_like: str = ''

  @property
  def places(self) -> list[tuple[int, str]]:
    """Return the conditions of cells, and whether these are subtracted."""
    if not self.more_at:
      return [(1, self.where)]
    pair = (1, self.more_at), (-1, self.less_at)
    return [(sign, f'{self.where},{more}') for sign, more in pair]

  def terms(self, table: Table, kind: str) -> tuple[Term, ...]:
    """Return the cells, read in the views of this kind, if they are given."""
    return tuple(
      _term(sign * side, table, f'{where},{chosen}', view)
      for sign, where in self.places
      for side, chosen, view in (
        (1, self.above, getattr(self, f'above_{kind}')),
        (-1, self.below, getattr(self, f'below_{kind}')),
      )
    )


PAIRS = (
  *(('more_at', 'less_at'), ('above_view', 'below_view')),
  ('above_like', 'below_like'),
)


def load_claims(path: Path, load_table: LoadTable) -> list[Claim]:
  """Return the claims of a file; refuse it as a whole if a part is wrong."""
  claims, number = [], 1
  try:
    for entry in tomllib.loads(path.read_text(encoding='utf-8'))['claims']:
      claims.append(_claim(load_table, **entry))
      number += 1
  except BadInput as error:
    raise BadInput(f'{path}, claim {number}: {error}') from error
  except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
    raise bad_input(
      f'{path}, claim {number}',
      got=f'{getattr(error, "strerror", None) or error}'.lower(),
      expected='a file of claims in TOML, as results/claims.toml',
    ) from error
  names = [claim.name for claim in claims]
  for name in names:
    if names.count(name) > 1:
      expected = 'a name for each claim'
      raise bad_input(str(path), got=f'{name} twice', expected=expected)
  return claims


def _claim(
  load_table: LoadTable,
  *,
  name: str,
  title: str,
  sentence: str,
  comparisons: list[dict[str, str]],
  **shared: str,
) -> Claim:
  stated = (Stated(**{**shared, **fields}) for fields in comparisons)
  made = tuple(_comparison(x, load_table(x.table)) for x in stated)
  return Claim(name, title, sentence, made)


def _comparison(stated: Stated, table: Table) -> Comparison:
  for first, second in PAIRS:
    if bool(getattr(stated, first)) != bool(getattr(stated, second)):
      expected = f'{first} and {second}, or neither'
      raise bad_input(first, got='one of two fields', expected=expected)
  if stated.above_like and not stated.unlike:
    expected = 'unlike: why the views differ'
    raise bad_input('above_like', got='no unlike', expected=expected)
  terms = stated.terms(table, 'view')
  return Comparison(
    stated.sentence or f'{terms[0].name} > {terms[1].name}',
    terms,
    tuple((stated.table, where) for _, where in stated.places),
    stated.unlike,
    stated.terms(table, 'like') if stated.above_like else (),
  )


def _term(sign: int, table: Table, where: str, view: str) -> Term:
  cells = filter_cells(table.cells, where)
  if len(cells) != 1:
    given = values_of(cells).items()
    varied = [f'a value of {name}' for name, known in given if len(known) > 1]
    got = f'{where}, which {len(cells)} cells of {table.name} match'
    expected = 'conditions that one cell matches'
    raise bad_input('where', got=got, expected=expected, choices=varied)
  cell = cells[0]
  if view:  # of which print has no number
    printed = cell.published._replace(mean=None)
    cell = cell._replace(published=printed, reading=Reading(view))
  return Term(sign, cell)

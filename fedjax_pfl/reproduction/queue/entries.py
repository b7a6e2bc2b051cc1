"""The file of a queue: published cells in the order of their worth.

  [claims]
  a = 'the row of FedBABU Table 13 with s = 5'

  [[cells]]
  claim = 'a'
  table = 'fedbabu/13'
  where = 'algorithm=ditto,shards_per_client=5,client_fraction=0.1'
  seeds = [0, 1, 2]
  minutes = 70  # of one seed, without a training that an entry above has
  note = 'what the reader should know'  # may be left out

The first seed of all entries comes first, in the order of the file, then the
next one. Every cell is listed once. What may follow the cells, above [claims]:

  leaderboards = ['cifar10']  # forms in configs/leaderboard.py
"""

import math
import pathlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.cells import Cell, Figure, Table
from fedjax_pfl.reproduction.planning.cell_filter import filter_cells


class Entry(NamedTuple):
  """Some cells of a table, to be run with some seeds."""

  claim: str
  table: Table
  where: str
  cells: tuple[Cell, ...]
  seeds: tuple[int, ...]
  minutes: float  # estimate of one seed
  note: str


class Queue(NamedTuple):
  """The entries, and what each claim is."""

  claims: dict[str, str]
  entries: tuple[Entry, ...]
  leaderboards: tuple[str, ...] = ()  # forms, after all cells


FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
  'claim': (lambda value: _is_text(value), 'the name of a claim'),
  'table': (lambda value: _is_text(value), "a table, such as 'fedbabu/13'"),
  'where': (
    lambda value: _is_text(value),
    "fields and values, such as 'algorithm=ditto,shards_per_client=5'",
  ),
  'seeds': (lambda value: _are_seeds(value), 'seeds, such as [0, 1, 2]'),
  'minutes': (lambda value: _is_time(value), 'a number of minutes, from 0 on'),
  'note': (lambda value: _is_text(value), 'a sentence'),
}
OPTIONAL = {'note': ''}


def load_queue(
  path: pathlib.Path, load_table: Callable[[str], Table | Figure]
) -> Queue:
  """Return the queue of a file; refuse it as a whole if a part is wrong."""
  content = _read(path)
  for name in content.keys() - {'claims', 'cells', 'leaderboards'}:
    parts = ['[claims]', '[[cells]]', 'leaderboards']
    raise _wrong(path, name, 'a part of a queue', parts)
  claims, listed = content.get('claims', {}), content.get('cells', [])
  if not isinstance(claims, dict) or not all(map(_is_text, claims.values())):
    raise _wrong(path, claims, "a sentence for each claim: a = 'what it is'")
  if not isinstance(listed, list) or not listed:
    raise _wrong(path, listed, 'one or more [[cells]]')
  boards = content.get('leaderboards', [])
  if not isinstance(boards, list) or not all(map(_is_text, boards)):
    raise _wrong(path, boards, "forms of the leaderboard, such as ['cifar10']")
  entries = []
  for number, one in enumerate(listed, start=1):
    try:
      entries.append(_entry(one, claims, load_table))
    except BadInput as error:
      raise BadInput(f'{path}, [[cells]] {number}: {error}') from error
  _check_distinct(path, entries)
  return Queue(claims, tuple(entries), tuple(boards))


def _read(path: pathlib.Path) -> dict[str, Any]:
  try:
    return tomllib.loads(path.read_bytes().decode())
  except OSError as error:
    raise _wrong(
      path, f'no file ({error.strerror})'.lower(), 'a queue', cause='its path'
    ) from error
  except ValueError as error:  # of TOML, or of UTF-8
    raise _wrong(path, str(error), 'a file in TOML') from error


def _entry(
  given: Any,
  claims: Mapping[str, str],
  load_table: Callable[[str], Table | Figure],
) -> Entry:
  if not isinstance(given, dict):
    raise _bad('[[cells]]', given, 'fields and their values', FIELDS)
  for name in given.keys() - FIELDS.keys():
    raise _bad('field', name, 'a field of an entry', FIELDS)
  for name in FIELDS.keys() - given.keys() - OPTIONAL.keys():
    raise _bad('field', f'no {name}', FIELDS[name][1], FIELDS)
  for name, value in given.items():
    is_valid, expected = FIELDS[name]
    if not is_valid(value):
      raise _bad(name, value, expected)
  if given['claim'] not in claims:
    raise _bad('claim', given['claim'], 'a claim of [claims]', claims)
  table = load_table(given['table'])
  if isinstance(table, Figure):
    raise _bad('table', table.name, 'a table; figures have no cells')
  cells = filter_cells(table.cells, given['where'])
  fields = {**OPTIONAL, **given}
  fields |= {'table': table, 'cells': cells, 'seeds': tuple(given['seeds'])}
  return Entry(**fields)


def _check_distinct(path: pathlib.Path, entries: Sequence[Entry]) -> None:
  """Refuse a cell that is listed twice with one seed."""
  known: dict[tuple, int] = {}
  for number, entry in enumerate(entries, start=1):
    for cell in entry.cells:
      for seed in entry.seeds:
        name = entry.table.name, entry.table.cells.index(cell), seed
        if name in known:
          raise _wrong(
            path,
            f'a cell of {entry.table.name}, seed {seed}, in [[cells]] '
            f'{known[name]} and {number}',
            'every cell once',
            cause=f'a `where` that matches more cells than meant: '
            f'{entry.where}',
          )
        known[name] = number


def _is_text(value: Any) -> bool:
  return isinstance(value, str) and bool(value.strip())


def _are_seeds(value: Any) -> bool:
  if not isinstance(value, list) or not value:
    return False
  whole = all(type(seed) is int and seed >= 0 for seed in value)
  return whole and len(set(value)) == len(value)


def _is_time(value: Any) -> bool:
  return type(value) in (int, float) and 0 <= value < math.inf


def _bad(name: str, got: Any, expected: str, choices: Any = None) -> BadInput:
  return bad_input(
    name,
    got=got,
    expected=expected,
    choices=choices,
    cause='a typing error, or a file of another version',
  )


def _wrong(
  path: pathlib.Path,
  got: Any,
  expected: str,
  choices: Any = None,
  cause: str = 'a typing error, or a file of another version',
) -> BadInput:
  return bad_input(
    str(path), got=got, expected=expected, choices=choices, cause=cause
  )

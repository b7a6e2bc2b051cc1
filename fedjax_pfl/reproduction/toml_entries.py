"""Files in TOML whose entries name cells of tables: read and checked.

A mistake is a sentence that begins with the file and the number of the entry.
"""

import pathlib
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Cell, Figure, Table

LoadTable = Callable[[str], Table | Figure]
# {field: (whether a value is one, what is expected)}
Rules = Mapping[str, tuple[Callable[[Any], bool], str]]
Made = TypeVar('Made')


def read_toml(path: pathlib.Path) -> dict[str, Any]:
  """Return the content of a file."""
  try:
    return tomllib.loads(path.read_bytes().decode())
  except OSError as error:
    got = f'no file ({error.strerror})'.lower()
  except ValueError as error:  # of TOML, or of UTF-8
    got = str(error)
  raise wrong(str(path), got, 'a file in TOML')


def make_each(
  place: str, name: str, listed: Any, make: Callable[[Any], Made]
) -> list[Made]:
  """Return what `make` makes of each entry; its errors say of which."""
  if not isinstance(listed, list) or not listed:
    raise wrong(place or name, listed, f'one or more [[{name}]]')
  made = []
  for number, given in enumerate(listed, start=1):
    try:
      made.append(make(given))
    except BadInput as error:
      where = ', '.join(filter(None, (place, f'[[{name}]] {number}')))
      raise BadInput(f'{where}: {error}') from error
  return made


def check_fields(
  given: Any, rules: Rules, optional: Collection[str] = ()
) -> None:
  """Refuse an entry with other fields, without one, or with a wrong value."""
  if not isinstance(given, dict):
    raise wrong('entry', given, 'fields and their values', rules)
  for name in given.keys() - rules.keys():
    raise wrong('field', name, 'a field of an entry', rules)
  for name, (is_valid, expected) in rules.items():
    if name in given and not is_valid(given[name]):
      raise wrong(name, given[name], expected)
    if name not in given and name not in optional:
      raise wrong('field', f'no {name}', expected, rules)


def choose_cells(
  load_table: LoadTable, name: str, where: str
) -> tuple[Table, tuple[Cell, ...]]:
  """Return a table, and those of its cells that match."""
  table = load_table(name)
  if isinstance(table, Figure):
    raise wrong('table', table.name, 'a table; figures have no cells')
  return table, filter_cells(table.cells, where)


def is_text(value: Any) -> bool:
  return isinstance(value, str) and bool(value.strip())


def wrong(name: str, got: Any, expected: str, choices: Any = None) -> BadInput:
  """Return the exception for a part of a file."""
  cause = 'a typing error, or a file of another version'
  return bad_input(
    name, got=got, expected=expected, choices=choices, cause=cause
  )


TABLE = (is_text, "a table, such as 'fedbabu/13'")
WHERE = (is_text, "fields and values, such as 'shards_per_client=5'")

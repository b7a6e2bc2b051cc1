"""Files in TOML whose entries name cells of tables: read and checked.

A mistake is a sentence that begins with the file and the number of the entry.
"""

import pathlib
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.cells import Table

LoadTable = Callable[[str], Table]
Made = TypeVar('Made')


def is_text(value: Any) -> bool:
  return isinstance(value, str) and bool(value.strip())


# Fields that are no texts: whether a value is one, and what is expected.
OTHERS = {'comparisons': (bool, 'one or more [[claims.comparisons]]')}


def read_toml(path: pathlib.Path) -> dict[str, Any]:
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
    is_valid, expected = OTHERS.get(name, (is_text, 'a text'))
    if name in given and not is_valid(given[name]):
      raise wrong(name, given[name], expected)
    if name not in given and name in required:
      raise wrong('field', f'no {name}', expected, names)


def wrong(name: str, got: Any, expected: str, choices: Any = None) -> BadInput:
  cause = 'a typing error, or a file of another version'
  return bad_input(
    name, got=got, expected=expected, choices=choices, cause=cause
  )

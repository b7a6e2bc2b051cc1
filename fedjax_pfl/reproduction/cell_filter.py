"""Choose cells of a table by their fields: 'shards_per_client=10'."""

from collections.abc import Sequence
from typing import Any

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.cells import Cell, field

# Fields that a filter may name, besides the variants of the table.
FIELDS = (
  *('algorithm', 'dataset', 'model', 'num_clients', 'shards_per_client'),
  *('client_fraction', 'local_epochs', 'partition', 'metric'),
)


def filter_cells(cells: Sequence[Cell], text: str) -> tuple[Cell, ...]:
  """Return the cells whose fields have these values; all, without a text.

  >>> filter_cells(table.cells, 'shards_per_client=10,client_fraction=0.1')

  A cell without a value, such as the fraction of Local-only, matches any value
  of it: it belongs to every row of its table.
  """
  chosen = tuple(cells)
  for pair in text.split(',') if text else ():
    name, equals, value = (part.strip() for part in pair.partition('='))
    if not (name and equals and value):
      examples = ['shards_per_client=10,client_fraction=0.1']
      cause = 'a typing error, or a comma too many'
      raise _refusal(text, 'fields and their values', examples, cause)
    known = values_of(cells)
    if name not in known:
      fields = [
        f'{one}={" or ".join(map(str, own))}' for one, own in known.items()
      ]
      cause = 'a typing error, or the field of another table'
      raise _refusal(name, 'a field of the cells of this table', fields, cause)
    matching = tuple(cell for cell in chosen if _matches(cell, name, value))
    if name not in values_of(matching):
      expected = f'a value of {name} that such cells of the table have'
      values = values_of(chosen).get(name, [])
      cause = 'another table, or a condition that rules it out'
      raise _refusal(f'{name}={value}', expected, values, cause)
    chosen = matching
  return chosen


def values_of(cells: Sequence[Cell]) -> dict[str, list[Any]]:
  """Return the values of each field, in the order of the table."""
  variants = (name for cell in cells for name in cell.published.variant)
  found = {}
  for name in dict.fromkeys((*FIELDS, *variants)):
    values = dict.fromkeys(field(cell.published, name) for cell in cells)
    if known := [one for one in values if one not in (None, '')]:
      found[name] = known
  return found


def _refusal(
  got: str, expected: str, choices: Sequence[Any], cause: str
) -> BadInput:
  return bad_input(
    '--where', got=got, expected=expected, choices=choices, cause=cause
  )


def _matches(cell: Cell, name: str, wanted: str) -> bool:
  """Return whether a field has this value; numbers are compared: 1.0 is 1."""
  value = field(cell.published, name)
  if value is None:  # a setting that the cell lacks; a variant is not one
    return name in FIELDS
  try:
    return float(value) == float(wanted)
  except ValueError:
    return str(value) == wanted

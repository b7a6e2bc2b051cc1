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
      examples = (
        'shards_per_client=10',
        'shards_per_client=10,client_fraction=0.1',
      )
      cause = 'a typing error, or a comma too many'
      raise _refusal(text, 'fields and their values', examples, cause)
    _check_name(name, cells)
    matching = tuple(cell for cell in chosen if _matches(cell, name, value))
    if not any(field(cell.published, name) is not None for cell in matching):
      raise _refusal(
        f'{name}={value}',
        f'a value of {name} that such cells of the table have',
        values_of(chosen, name),
        'another table, or a condition that rules it out',
      )
    chosen = matching
  return chosen


def values_of(cells: Sequence[Cell], name: str) -> list[Any]:
  """Return the values of a field, in the order of the table."""
  values = (field(cell.published, name) for cell in cells)
  return list(dict.fromkeys(v for v in values if v is not None))


def _check_name(name: str, cells: Sequence[Cell]) -> None:
  variants = (variant for cell in cells for variant in cell.published.variant)
  values = {
    known: values_of(cells, known)
    for known in dict.fromkeys((*FIELDS, *variants))
  }
  if not values.get(name):
    choices = [
      f'{known}={" or ".join(map(str, own))}'
      for known, own in values.items()
      if own
    ]
    cause = 'a typing error, or the field of another table'
    raise _refusal(name, 'a field of the cells of this table', choices, cause)


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

"""Choose cells of a table by their fields: 'shards_per_client=10'."""

from collections.abc import Sequence
from typing import Any

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction.cells import Cell, Published, field

# What a filter may name besides the variants of the table.
FIELDS = (
  *('algorithm', 'dataset', 'model', 'num_clients', 'shards_per_client'),
  *('client_fraction', 'local_epochs', 'partition', 'metric'),
)


def where(cells: Sequence[Cell], text: str) -> tuple[Cell, ...]:
  """Return the cells whose fields have these values; all, without a text.

  >>> where(table.cells, 'shards_per_client=10,client_fraction=0.1')

  A cell without a value, such as the fraction of Local-only, answers to any:
  it stands in every row of its table.
  """
  chosen = tuple(cells)
  for name, value in _conditions(text):
    _check_name(name, cells)
    kept = tuple(cell for cell in chosen if _matches(cell, name, value))
    if not any(field(cell.published, name) is not None for cell in kept):
      raise bad_input(
        '--where',
        got=f'{name}={value}',
        expected=f'a value of {name} that such cells of the table have',
        choices=values_of(chosen, name),
        cause='another table, or a condition that rules it out',
      )
    chosen = kept
  return chosen


def values_of(cells: Sequence[Cell], name: str) -> list[Any]:
  """Return the values of a field, in the order of the table."""
  values = (field(cell.published, name) for cell in cells)
  return list(dict.fromkeys(v for v in values if v is not None))


def _conditions(text: str) -> list[tuple[str, str]]:
  pairs = [part.partition('=') for part in text.split(',') if text]
  for name, equals, value in pairs:
    if not (name.strip() and equals and value.strip()):
      raise bad_input(
        '--where',
        got=text,
        expected='fields and their values',
        choices=[
          'shards_per_client=10',
          'shards_per_client=10,client_fraction=0.1',
        ],
        cause='a typing error, or a comma too many',
      )
  return [(name.strip(), value.strip()) for name, _, value in pairs]


def _check_name(name: str, cells: Sequence[Cell]) -> None:
  names = [one for one in FIELDS if len(values_of(cells, one)) > 0]
  variants = (name for cell in cells for name in cell.published.variant)
  names += dict.fromkeys(variants)
  if name not in names:
    raise bad_input(
      '--where',
      got=name,
      expected='a field of the cells of this table',
      choices=[
        f'{one}={" or ".join(map(str, values_of(cells, one)))}' for one in names
      ],
      cause='a typing error, or the field of another table',
    )


def _matches(cell: Cell, name: str, wanted: str) -> bool:
  """Return whether a field has the value that is meant: 1.0 is 1."""
  value = field(cell.published, name)
  if value is None:  # a setting that it has not got; not so a variant
    return name in FIELDS
  try:
    return float(value) == float(wanted)
  except ValueError:
    return str(value) == wanted


def describe(published: Published, names: Sequence[str]) -> str:
  """Return 'shards 5, fraction 0.1' of a cell, without what it has not got."""
  pairs = ((name, field(published, name)) for name in names)
  return ', '.join(f'{n.replace("_", " ")} {v}' for n, v in pairs if v)

"""Rows of summary.csv whose runs are gone: the numbers stay in the file.

Its other rows are made again from the results. A run directory may be absent
(it was made before those were committed, or is on another machine); its number
was quoted all the same, with its command and commit.
"""

import csv
import io
import os
import pathlib
from collections.abc import Callable, Iterable

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.reproduction.output.run_summary import COLUMNS, Row, sort_rows

Identity = tuple[str, str]  # key and view of a row
NUMBERS = ('mean', 'std', 'num_clients', 'worst_decile')


def read_csv(path: str | os.PathLike) -> list[Row]:
  """Return the rows of summary.csv; none without the file."""
  path = pathlib.Path(path)
  if not path.is_file():
    return []
  try:
    text = path.read_bytes().decode()
    first, *rows = csv.reader(io.StringIO(text, newline=''))
    if tuple(first) != COLUMNS:
      raise _refusal(path, f'the columns {", ".join(first)}')
    return [_row(values) for values in rows]
  except BadInput:
    raise
  except (ValueError, csv.Error) as error:
    raise _refusal(path, f'a row that cannot be read: {error}') from error


def with_kept(
  rows: Iterable[Row], old: Iterable[Row], log: Callable[[str], None]
) -> list[Row]:
  """Return the rows, and old ones that they lack, with an empty `run`.

  An old row with other numbers is replaced, and that is logged.
  """
  merged = by_identity(rows)
  for row in old:
    new = merged.setdefault(identity(row), {**row, 'run': ''})
    if any(new[name] != row[name] for name in NUMBERS):
      log(
        f'{row["setting"]}, seed {row["seed"]}, {row["view"]}: '
        f'{row["mean"]} in the summary is now {new["mean"]}.'
      )
  return sort_rows(merged.values())


def by_identity(rows: Iterable[Row]) -> dict[Identity, Row]:
  """Return the rows by key and view."""
  return {identity(row): row for row in rows}


def identity(row: Row) -> Identity:
  return row['key'], row['view']


def _row(values: list[str]) -> Row:
  row = dict(zip(COLUMNS, values, strict=True))
  int(row['seed'])
  for name in NUMBERS:
    float(row[name] or 0)
  return row


def _refusal(path: pathlib.Path, got: str) -> BadInput:
  return bad_input(
    'results',
    got=f'{path} with {got}',
    expected=f'a summary of this version, with {", ".join(COLUMNS)}',
    choices=[
      'put back the file of this version',
      'move it away: it is made again, without rows of runs that are gone',
    ],
    cause='a folder of results of another version, or a file edited by hand',
  )

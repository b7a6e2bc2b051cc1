"""Read a table: a CSV (.csv, .csv.gz) or a Parquet file, a row an example.

  label    the column of labels, or several; what they are, the loss says
  client   the column of who holds a row, by any name
  split    the column with the words train and test
  group    a column such as the patient: who is on both sides is said

Every other column is a feature. Numbers stay as they are, and empty cells are
gaps (NaN), which standardise.py fills. A column of text is a category: 0 or 1
for each level of its training rows; a gap, or a level of test rows alone, is 0
for all. Columns that are constant in training rows are left out. Without
`split` all rows are for training, of which a share becomes tests.
"""

import csv
import functools
import gzip
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import (
  BadInput,
  bad_input,
  check_installed,
  expand_home,
)
from fedjax_pfl.data import images, table_labels
from fedjax_pfl.data.images import Dataset, Images, Shape, Where, natural_key
from fedjax_pfl.data.table_labels import Columns, numbers_of

SUFFIXES = '.csv', '.csv.gz', '.parquet'
MAX_LEVELS = 100  # of a category: more are names or dates


class Content(NamedTuple):
  """What a file holds: features, and what is known of each row."""

  x: np.ndarray  # [P, D] float32, NaN for gaps
  names: list[str]  # [D]
  labels: table_labels.Labels
  is_test: np.ndarray  # [P] bool
  owners: np.ndarray | None  # [P]
  clients: list[str]
  notes: list[str]  # sentences for the user


def peek(where: Where) -> Shape:
  """Return the number of features, what labels are, and who has the rows."""
  content = _read(where)
  labels = content.labels
  return Shape(
    content.x.shape[1:],
    labels.num_outputs,
    'float32',
    labels.y.shape[1:],
    where.table.kind,
    len(content.clients),
    bool(content.is_test.any()),
  )


def load(where: Where) -> Dataset:
  """Return the rows, with gaps, and the client of each if it is known."""
  content = _read(where)
  for note in content.notes:
    where.log_fn(note)
  masks, labels = (~content.is_test, content.is_test), content.labels
  splits = [Images(content.x[mask], labels.y[mask]) for mask in masks]
  dataset = images.make_dataset(where.name, *splits, labels.num_outputs)
  dataset = dataset._replace(class_names=labels.names, columns=content.names)
  if content.owners is None:
    return dataset
  clients = tuple(content.owners[mask] for mask in masks)
  return dataset._replace(clients=clients, client_names=content.clients)


def features_of(file: str, names: Sequence[str]) -> np.ndarray:
  """Return the features [P, D] of these names in another file, gaps as NaN."""
  columns, features = Columns(path := pathlib.Path(file), _cells(path)), []
  for name in names:
    levels = [x for x in columns.cells if name.startswith(f'{x}=')]
    if name not in columns.cells and levels:  # of a category
      column = max(levels, key=len)
      cells = np.array(columns.cells[column])
      features.append(cells == name.removeprefix(f'{column}='))
      continue
    columns.check_name('images', name)
    values = numbers_of(columns, name)
    if values is None:
      raise columns.refuse(name, 0, 'a number, as in training')
    features.append(values)
  return np.stack(features, axis=1).astype(np.float32)


def _read(where: Where) -> Content:
  """Return what a file holds, read once as long as it stays the same."""
  file = expand_home('data_dir', where.data_dir)
  if not (file.name.endswith(SUFFIXES) and file.is_file()):
    raise bad_input(
      'data_dir',
      got=where.data_dir,
      expected=f'a file that is there, and ends in {", ".join(SUFFIXES)}',
      cause='a path from another folder, a set that `fedjax-pfl prepare` has '
      'yet to write, or --config.data_dir was left out',
    )
  stat = file.stat()
  return _content(file, (stat.st_size, stat.st_mtime_ns), where.table)


@functools.lru_cache(maxsize=4)
def _content(file: pathlib.Path, version, table: images.Table) -> Content:
  columns = Columns(file, _cells(file))
  others = table.client, table.split, table.group
  special = *table.label, *filter(None, others)
  for field in ('label', 'client', 'split', 'group'):
    names = getattr(table, field)
    for name in (names,) * bool(names) if isinstance(names, str) else names:
      columns.check_name(field, name)
  if not table.label or len({*special}) < len(special):
    raise bad_input(
      'label',
      got=','.join(table.label),
      expected='a column of labels, or several with a comma between; other '
      'ones than client, split and group, which differ, too',
      choices=columns.cells,
    )
  is_test = _split(columns, table.split)
  labels = table_labels.read(columns, table, is_test)
  owners, clients = _owners(columns, table.client, is_test)
  features = [name for name in columns.cells if name not in special]
  x, names, notes = _features(columns, features, ~is_test)
  content = Content(x, names, labels, is_test, owners, clients, notes)
  notes = [*notes, *_oddities(content), *_both_sides(columns, table, is_test)]
  return content._replace(notes=notes)


def _cells(file: pathlib.Path) -> dict[str, list[str]]:
  """Return the cells of every column by its name, as text."""
  if file.suffix == '.parquet':
    check_installed('data_dir', 'pyarrow', ['a .csv file'])
  try:
    if file.suffix == '.parquet':
      import pyarrow.parquet as parquet

      # Not as a data set: folders of a path would be columns.
      columns = parquet.ParquetFile(file).read().to_pydict()
      text = lambda cell: '' if cell is None else str(cell).strip()
      return {name: [*map(text, cells)] for name, cells in columns.items()}
    opened = gzip.open if file.suffix == '.gz' else open
    with opened(file, 'rt', encoding='utf-8-sig', newline='') as stream:
      rows = [[*map(str.strip, row)] for row in csv.reader(stream) if row]
  except PermissionError:
    raise
  except Exception as error:  # gzip, csv and pyarrow raise a dozen kinds
    raise _damaged(file, f'which cannot be read: {error}') from error
  header, *rows = rows or [[]]
  if len({*header}) < len(header) or not all(header) or not rows:
    raise _damaged(file, f'with {len(rows)} rows below the line {header}')
  for number, row in enumerate(rows):
    if len(row) != len(header):
      line = f'with {len(row)} cells in row {number + 1}: {row}'
      raise _damaged(file, line)
  return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _damaged(file: pathlib.Path, got: str) -> BadInput:
  return bad_input(
    'data_dir',
    got=f'{file}, {got}',
    expected='a first line with the name of each column, all different, then '
    'rows with as many cells',
    cause='another separator than a comma, a file without that line, or a '
    'copy that was cut short',
  )


def _split(columns: Columns, name: str) -> np.ndarray:
  """Return which rows are for testing [P]."""
  if not name:
    return np.zeros(columns.size, bool)
  words = np.array(columns.cells[name])
  strange = ~np.isin(words, images.SPLITS)
  if strange.any() or (words == 'test').all():
    raise columns.refuse(
      name,
      int(strange.argmax()),
      'the word train or test in every row, and train in some; rows to choose '
      'on are train, too, of which --config.validation_fraction=0.2 keeps some',
      'other words, such as validation',
    )
  return words == 'test'


def _owners(
  columns: Columns, name: str, is_test: np.ndarray
) -> tuple[np.ndarray | None, list[str]]:
  """Return who holds each row [P], and the names of the clients."""
  if not name:
    return None, []
  cells = columns.cells[name]
  if '' in cells:
    row = cells.index('')
    raise columns.refuse(name, row, 'the client of every row', 'an empty cell')
  clients = sorted({*cells}, key=natural_key)
  number = {client: at for at, client in enumerate(clients)}
  owners = np.array([number[cell] for cell in cells])
  counts = np.bincount(owners[~is_test], minlength=len(clients))
  if not counts.all():
    client = clients[int(counts.argmin())]
    raise columns.refuse(
      name,
      cells.index(client),
      'training rows of every client',
      'a client all of whose rows are for testing',
    )
  return owners, clients


def _features(
  columns: Columns, names: Sequence[str], trains: np.ndarray
) -> tuple[np.ndarray, list[str], list[str]]:
  """Return the features [P, D], their names, and notes about columns."""
  found, notes = {}, []
  for name in names:
    cells = columns.cells[name]
    values = numbers_of(columns, name)
    if values is not None:
      found[name] = values
      continue
    text = np.array(cells)
    levels = [level for level in np.unique(text[trains]).tolist() if level]
    if len(levels) > MAX_LEVELS:
      raise columns.refuse(
        name,
        0,
        f'numbers, or a category of at most {MAX_LEVELS} levels, not '
        f'{len(levels):,}',
        'a column of names, dates or ids: leave it out of the file',
      )
    found |= {f'{name}={level}': 1.0 * (text == level) for level in levels}
  spread = lambda values: len(np.unique(values[trains & ~np.isnan(values)]))
  constant = [name for name in found if spread(found[name]) < 2]
  if constant:
    notes.append(f'Left out, constant in training rows: {", ".join(constant)}.')
  used = {name: x for name, x in found.items() if name not in constant}
  if not used:
    raise bad_input(
      'data_dir',
      got=f'{columns.file} without a feature that varies',
      expected='a column besides label, client and split with several values',
    )
  x = np.stack([*used.values()], 1).astype(np.float32)
  gaps = np.isnan(x).sum(0)
  if gaps.any():
    at = ', '.join(f'{n} {g:,}' for n, g in zip(used, gaps, strict=True) if g)
    notes.append(f'Missing cells, filled by medians of training rows: {at}.')
  return x, [*used], notes


def _both_sides(
  columns: Columns, table: images.Table, is_test: np.ndarray
) -> list[str]:
  """Return a sentence where rows of one group are, or may be, on both sides."""
  if not table.group:
    return []
  cells = np.array(columns.cells[table.group])
  both = np.intersect1d(cells[is_test], cells[~is_test]).tolist()
  if both:
    return [
      f'Values of {table.group} in training and in test rows, {len(both):,}: '
      f'{", ".join(both[:10])}.'
    ]
  if table.split or len(np.unique(cells)) == len(cells):
    return []
  return [
    f'Tests are drawn row by row: rows of one {table.group} may be on both '
    'sides, unless a column split decides.'
  ]


def _oddities(content: Content) -> list[str]:
  """Return sentences about rows and clients that are odd, but may be right."""
  notes, (labels, is_test) = [], (content.labels, content.is_test)
  y = labels.y.reshape(len(labels.y), -1).astype(np.float32)
  rows = np.ascontiguousarray(np.concatenate([content.x, y], axis=1))
  kind = np.dtype((np.void, rows.strides[0]))
  keys = np.unique(rows.view(kind).ravel(), return_inverse=True)[1]
  twice = np.isin(keys[is_test], keys[~is_test]).sum()
  if twice:
    notes.append(
      f'{twice:,} of {is_test.sum():,} test rows are training rows, too: all '
      'their cells are equal.'
    )
  if content.owners is None:
    return notes
  same: dict[tuple, list[str]] = {}
  for at, client in enumerate(content.clients):
    held = tuple(sorted(keys[content.owners == at].tolist()))
    same.setdefault(held, []).append(client)
  for clients in same.values():
    if len(clients) > 1:
      notes.append(f'The rows of {" and ".join(clients)} are the same.')
  bare = [
    client
    for at, client in enumerate(content.clients)
    if len(np.unique(labels.kinds[content.owners == at])) < 2
  ]
  if bare:
    notes.append(
      f'Clients with {labels.bare}, {len(bare)}: {", ".join(bare[:10])}.'
    )
  return notes

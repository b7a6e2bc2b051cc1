"""The published numbers as they are printed, and their footnotes."""

import collections

import pytest

from fedjax_pfl.reproduction import published
from fedjax_pfl.reproduction.cells import field

# Rows of a table, as published.md has them.
COUNTS = {
  'fedbabu': [36, 30, 72, 54, 129, 36, 36, None, 36, 48, 72, 72, 129]
  + [90, 90, 36, 36, 16, 24, 96, 18, 36, 12, 36, 105],
  'fedconcat': [87, 56, 58],
  'superfed': [20, 20, 40],
}


def find(paper, table, **fields):
  """Return the printed cells of a table with these fields."""
  return [
    row
    for row in published.load()
    if (row.paper, row.table) == (paper, table)
    and all(field(row, name) == value for name, value in fields.items())
  ]


def test_every_table_has_its_rows_and_no_two_are_alike():
  rows = published.load()
  counts = collections.Counter((row.paper, row.table) for row in rows)
  assert counts == {
    (paper, str(table)): count
    for paper, numbers in COUNTS.items()
    for table, count in enumerate(numbers, 1)
    if count is not None
  }
  keys = {
    (*row._replace(variant=None, mean=None, std=None), *row.variant.items())
    for row in rows
  }
  assert len(keys) == len(rows)  # then a cell may be named by its fields


S5 = {
  'algorithm': 'fedbabu',
  'shards_per_client': 5,
  'client_fraction': 0.1,
  'local_epochs': 10,
}
LOCAL = {'algorithm': 'local_only', 'shards_per_client': 2}
SIMILAR = {'head': 'similar', 'shards_per_client': 10, 'mean': 58.63}


@pytest.mark.parametrize(
  ('table', 'where', 'fields'),
  [
    (
      *('13', {**S5, 'local_epochs': 1}),
      {'mean': 82.76, 'std': 6.47, 'num_clients': 100},
    ),
    (
      '13',
      LOCAL,
      {'client_fraction': None, 'local_epochs': None, 'variant': {}},
    ),
    ('24', SIMILAR, {'variant': {'head': 'similar'}, 'std': 8.43}),
  ],
)
def test_numbers_are_numbers(table, where, fields):
  (row,) = find('fedbabu', table, **where)
  assert {name: getattr(row, name) for name in fields} == fields
  assert find('superfed', '1')[0].std is None


@pytest.mark.parametrize(
  'note', [note for group in published.load_footnotes() for note in group]
)
def test_every_footnote_is_about_some_cell(note):
  """A misspelt field or value would silently drop a footnote."""
  noted = [
    row for row in published.load() if note.text in published.footnote(row)
  ]
  assert noted and note.text.endswith('.')
  for name, values in note.where.items():
    assert {field(row, name) for row in noted} >= set(values), name


PROX = {'algorithm': 'fedprox', 'shards_per_client': 100, 'mean': 42.25}


@pytest.mark.parametrize(
  ('table', 'fields', 'words'),
  [
    ('22', PROX, '52.25'),
    ('13', S5, '84.31 ± 6.45'),
    ('12', {**S5, 'metric': 'initial_accuracy'}, '63.29 ± 8.71'),
  ],
)
def test_the_footnote_of_one_cell(table, fields, words):
  (row,) = find('fedbabu', table, **fields)
  assert words in published.footnote(row)


@pytest.mark.parametrize(
  ('paper', 'tables', 'method', 'words', 'number'),
  [
    # 33 of the 72 numbers of Table 3 recur in other tables.
    ('fedbabu', '3', '', "Taken from a third party's slides", 39),
    ('superfed', '12', 'apfl', 'In APFL no private model', 8),
    ('superfed', '12', 'fedprox', 'mu of FedProx is not', 8),
    ('fedbabu', ['18', '19'], 'local_only', 'the recipe (160', 5),
    ('fedconcat', '3', '', 'BatchNorm uses the statistics of the batch', 58),
  ],
)
def test_how_many_cells_carry_a_footnote(paper, tables, method, words, number):
  """Those of these tables and fields, and no other cell."""
  noted = [row for row in published.load() if words in published.footnote(row)]
  fields = {'algorithm': method} if method else {}
  expected = [row for table in tables for row in find(paper, table, **fields)]
  assert {*map(str, noted)} <= {*map(str, expected)} and len(noted) == number


def test_plain_cells_have_no_footnote():
  for table in ('1', '4', '6', '21', '24'):
    assert not any(map(published.footnote, find('fedbabu', table)))

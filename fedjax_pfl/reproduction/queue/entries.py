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

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.reproduction.cells import Cell, Table
from fedjax_pfl.reproduction.toml_entries import (
  LoadTable,
  check_fields,
  choose_cells,
  is_text,
  make_each,
  read_toml,
  wrong,
)


class Entry(NamedTuple):
  """Some cells of a table, to be run with some seeds."""

  claim: str
  table: Table
  where: str
  cells: tuple[Cell, ...]
  seeds: tuple[int, ...]
  minutes: float  # estimate of one seed


class Queue(NamedTuple):
  """The entries, and what each claim is."""

  claims: dict[str, str]
  entries: tuple[Entry, ...]
  leaderboards: tuple[str, ...] = ()  # forms, after all cells


def load_queue(path: pathlib.Path, load_table: LoadTable) -> Queue:
  """Return the queue of a file; refuse it as a whole if a part is wrong."""
  content = read_toml(path)
  for name in content.keys() - {'claims', 'cells', 'leaderboards'}:
    parts = ['[claims]', '[[cells]]', 'leaderboards']
    raise wrong(str(path), name, 'a part of a queue', parts)
  claims, boards = content.get('claims', {}), content.get('leaderboards', [])
  if not isinstance(claims, dict) or not all(map(is_text, claims.values())):
    expected = "a sentence for each claim: a = 'what it is'"
    raise wrong(str(path), claims, expected)
  if not isinstance(boards, list) or not all(map(is_text, boards)):
    expected = "forms of the leaderboard, such as ['cifar10']"
    raise wrong(str(path), boards, expected)

  def make(given):
    return _entry(given, claims, load_table)

  entries = make_each(str(path), 'cells', content.get('cells', []), make)
  _check_distinct(path, entries)
  return Queue(claims, tuple(entries), tuple(boards))


def _entry(given: Any, claims: Mapping[str, str], load_table: LoadTable):
  required = ('claim', 'table', 'where', 'seeds', 'minutes')
  check_fields(given, required, ['note'])
  if given['claim'] not in claims:
    raise wrong('claim', given['claim'], 'a claim of [claims]', claims)
  where = given['where']
  table, cells = choose_cells(load_table, given['table'], where)
  seeds = tuple(given['seeds'])
  return Entry(given['claim'], table, where, cells, seeds, given['minutes'])


def _check_distinct(path: pathlib.Path, entries: Sequence[Entry]) -> None:
  """Refuse a cell that is listed twice with one seed."""
  known: dict[tuple, int] = {}
  for number, entry in enumerate(entries, start=1):
    for place in map(entry.table.cells.index, entry.cells):
      for seed in entry.seeds:
        first = known.setdefault((entry.table.name, place, seed), number)
        if first != number:
          raise wrong(
            str(path),
            f'a cell of {entry.table.name}, seed {seed}, in [[cells]] {first} '
            f'and {number} ({entry.where})',
            'every cell once',
          )

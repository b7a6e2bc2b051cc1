"""A board as rows of numbers: what the page shows and the CSV has.

A value is None where a method has no such number; in the file it is empty.
"""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.leaderboard.board import (
  ABOVE,
  BELOW,
  VERDICTS,
  Board,
  baseline_name,
)
from fedjax_pfl.leaderboard.entries import (
  Costs,
  Entry,
  seed_means,
  worst_tenth,
)
from fedjax_pfl.leaderboard.form import Form
from fedjax_pfl.report.styles import display_name

Row = dict[str, Any]
KEY = 'partition', 'method'
ACCURACIES = '', '_lowest_seed', '_highest_seed', '_worst_tenth'
REFERENCE, BASELINE = 'reference', 'baseline'


def rows_of(form: Form, board: Board) -> list[Row]:
  """Return a row for every method of a partition."""
  return [_row(form, board, entry) for entry in board.entries]


def ranked(rows: Sequence[Row]) -> list[Row]:
  """Return the highest first, then those that are not compared."""

  def key(row):
    after = row['after']
    return after is None, row['kind'] == REFERENCE, -(after or 0.0)

  return sorted(rows, key=key)


def _row(form: Form, board: Board, entry: Entry) -> Row:
  choice, kind = entry.choice, 'method'
  if entry.method in form.baselines:
    kind = BASELINE
  elif entry.is_reference:
    kind = REFERENCE
  row = {
    'partition': board.partition,
    'method': entry.method,
    'kind': kind,
    'seeds': ' '.join(map(str, form.seeds)),
    'learning_rate': choice and choice.rate,
    'is_end_of_grid': choice and choice.is_edge,
    'view': choice and choice.view,
    'validation': choice and choice.accuracy,
  }
  for name in ('before', 'after'):
    accuracy, values = getattr(entry, name), [None] * len(ACCURACIES)
    if accuracy is not None:
      means = seed_means(accuracy)
      values = means.mean(), means.min(), means.max(), worst_tenth(accuracy)
    for column, value in zip(ACCURACIES, values, strict=True):
      row[f'{name}{column}'] = None if value is None else float(value)
  for baseline, found in board.against.items():
    one = found.get(entry.method)
    for name in ('mean', 'low', 'high'):
      row[f'vs_{baseline}_{name}'] = one and getattr(one, name)
    row[f'vs_{baseline}_verdict'] = one and VERDICTS[one.sign]
  costs = entry.costs or [None] * len(Costs._fields)
  row |= dict(zip(Costs._fields, costs, strict=True))
  return {**row, 'obstacle': entry.obstacle}


def write(rows: Sequence[Row], path: pathlib.Path) -> None:
  """Write the rows, whole or not at all."""
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def _text(value: Any) -> str:
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return '' if value is None else str(value)


def read(path: str | os.PathLike) -> list[Row]:
  """Return the rows of a leaderboard as texts; refuse any other file."""
  cause = 'a CSV of something else'
  try:
    with open(path, newline='') as file:
      rows = list(csv.DictReader(file))
  except (OSError, UnicodeDecodeError) as error:
    rows, cause = [], f'{getattr(error, "strerror", None) or error}'.lower()
  if not rows or not {*KEY, 'seeds'} <= {*rows[0]}:
    raise bad_input(
      'against',
      got=str(path),
      expected='the CSV of a leaderboard',
      choices=['runs/leaderboard/digits_seeds_0_1_2.csv'],
      cause=cause,
    )
  return rows


def changed_verdicts(
  rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]
) -> list[str]:
  """Return sentences: how many verdicts are those of the others, which not.

  Only methods that both have are compared; [] without any.
  """
  known = {tuple(row[name] for name in KEY): row for row in others}
  same, contrary, weaker = 0, [], []
  for row in rows:
    other = known.get(tuple(row[name] for name in KEY), {})
    for column in (name for name in row if name.endswith('_verdict')):
      here, there = row[column], other.get(column)
      if not here or not there:
        continue
      if here == there:
        same += 1
        continue
      baseline = column.removeprefix('vs_').removesuffix('_verdict')
      opposed = {here, there} == {ABOVE, BELOW}
      (contrary if opposed else weaker).append(
        f'{row["partition"]}, {display_name(row["method"])} against '
        f'{baseline_name(baseline)}: {here}, there {there}.'
      )
  total = same + len(contrary) + len(weaker)
  if not total:
    return []
  line = (
    f'{same} of {total} verdicts are those of seeds {others[0]["seeds"]}; '
    f'{len(contrary)} are the contrary, {len(weaker)} are distinguishable with '
    'one of the two sets of seeds alone.'
  )
  return [line, *contrary, *weaker]

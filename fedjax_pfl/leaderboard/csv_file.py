"""The leaderboard as rows: a CSV, and what differs between two of them."""

import csv
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.leaderboard.entries import Entry, seed_means, worst_tenth
from fedjax_pfl.leaderboard.form import Form
from fedjax_pfl.leaderboard.verdicts import (
  ABOVE,
  BELOW,
  VERDICTS,
  Board,
  baseline_name,
)
from fedjax_pfl.report.styles import display_name

Row = dict[str, str]
KEY = 'partition', 'method'


def rows_of(form: Form, boards: Sequence[Board]) -> list[Row]:
  """Return a row for every method of every partition; texts, as in the file."""
  return [
    {name: _text(value) for name, value in _row(form, board, entry).items()}
    for board in boards
    for entry in board.entries
  ]


def write(rows: Sequence[Row], path: pathlib.Path) -> None:
  """Write the rows, whole or not at all."""
  stream = io.StringIO()
  writer = csv.DictWriter(stream, [*rows[0]], lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  path.parent.mkdir(parents=True, exist_ok=True)
  atomic_files.write_bytes(path, stream.getvalue().encode())


def read(path: str | os.PathLike) -> list[Row]:
  """Return the rows of a leaderboard; refuse any other file."""
  try:
    with open(path, newline='') as file:
      rows = list(csv.DictReader(file))
  except (OSError, UnicodeDecodeError) as error:
    reason = getattr(error, 'strerror', None) or error
    raise _no_leaderboard(path, f'{reason}'.lower()) from error
  if not rows or not {*KEY, 'seeds'} <= {*rows[0]}:
    raise _no_leaderboard(path, 'a CSV of something else')
  return rows


def changed_verdicts(rows: Sequence[Row], others: Sequence[Row]) -> list[str]:
  """Return sentences: how many verdicts are those of the others, which not.

  Only methods that both have are compared; [] without any.
  """
  known = {tuple(row[name] for name in KEY): row for row in others}
  same, contrary, weaker = 0, [], []
  for row in rows:
    other = known.get(tuple(row[name] for name in KEY), {})
    for column in (name for name in row if name.endswith('_verdict')):
      pair = row[column], other.get(column, '')
      if not all(pair):
        continue
      words = (
        f'{row["partition"]}, {display_name(row["method"])} against '
        f'{baseline_name(column.removeprefix("vs_").removesuffix("_verdict"))}'
        f': {pair[0]}, there {pair[1]}'
      )
      if pair[0] == pair[1]:
        same += 1
      else:
        opposed = {*pair} == {ABOVE, BELOW}
        (contrary if opposed else weaker).append(words)
  total = same + len(contrary) + len(weaker)
  if not total:
    return []
  lines = [
    f'{same} of {total} verdicts are those of seeds {others[0]["seeds"]}; '
    f'{len(contrary)} are the contrary, {len(weaker)} are distinguishable with '
    'one of the two sets of seeds alone.'
  ]
  return [*lines, *(f'{words}.' for words in (*contrary, *weaker))]


def _row(form: Form, board: Board, entry: Entry) -> dict[str, Any]:
  choice, costs = entry.choice, entry.costs
  row = {
    'partition': board.partition,
    'method': entry.method,
    'kind': _kind(form, entry),
    'seeds': ' '.join(map(str, form.seeds)),
    'learning_rate': choice and choice.rate,
    'is_end_of_grid': choice and choice.is_edge,
    'view': choice and choice.view,
    'validation': choice and choice.accuracy,
    **_accuracies('before', entry.before),
    **_accuracies('after', entry.after),
  }
  for baseline, found in board.against.items():
    one = found.get(entry.method)
    for name in ('mean', 'low', 'high'):
      row[f'vs_{baseline}_{name}'] = one and getattr(one, name)
    row[f'vs_{baseline}_verdict'] = one and VERDICTS[one.sign]
  for name in ('gradients', 'bytes_up', 'bytes_down', 'seconds'):
    row[name] = costs and getattr(costs, name)
  return {**row, 'obstacle': entry.obstacle}


def _accuracies(name: str, accuracy: np.ndarray | None) -> dict[str, Any]:
  """Return the mean, that of the lowest and highest seed, and the worst tenth.

  All are over clients, then over seeds.
  """
  columns = ('', '_lowest_seed', '_highest_seed', '_worst_tenth')
  if accuracy is None:
    return {f'{name}{column}': None for column in columns}
  means = seed_means(accuracy)
  values = means.mean(), means.min(), means.max(), worst_tenth(accuracy)
  return {f'{name}{c}': float(v) for c, v in zip(columns, values, strict=True)}


def _kind(form: Form, entry: Entry) -> str:
  if entry.method in form.baselines:
    return 'baseline'
  return 'reference' if entry.is_reference else 'method'


def _text(value: Any) -> str:
  if value is None:
    return ''
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return str(value)


def _no_leaderboard(path: str | os.PathLike, cause: str) -> Exception:
  return bad_input(
    'against',
    got=str(path),
    expected='the CSV of a leaderboard',
    choices=['runs/leaderboard/digits_seeds_0_1_2.csv'],
    cause=cause,
  )

"""The rows of one partition: their CSV, and their verdicts in words.

A difference is that of the means of each seed, by Student's paired t with an
error not below that of the clients. Holm's p below 0.05 over all comparisons
with the baselines in a partition is a verdict. So is, apart from these, that
over all pairs of methods. A value is None where a method has no such number; in
the file it is empty.
"""

import csv
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.differences import (
  LEVEL,
  Difference,
  holm,
  over_paired_clients,
  over_seeds,
)
from fedjax_pfl.evaluation.summary import worst_decile
from fedjax_pfl.leaderboard.form import BASELINES, Form
from fedjax_pfl.leaderboard.method_results import Costs, Entry
from fedjax_pfl.report.styles import display_name

ABOVE, BELOW, OPEN = 'above', 'below', 'not distinguishable'
VERDICTS = ABOVE, BELOW, OPEN
REFERENCE, BASELINE = 'reference', 'baseline'
KEY = 'partition', 'method'

Row = dict[str, Any]  # of a method


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  partition: str
  rows: tuple[Row, ...]
  best: str  # the method with the highest mean
  peers: tuple[str, ...]  # those that are not distinguishable from it


def make_board(
  form: Form, partition: str, entries: Sequence[Entry]
) -> Board | None:
  """Return the board; None without the numbers of both baselines."""
  after = {
    entry.method: entry.after
    for entry in entries
    if entry.after is not None and not entry.is_reference
  }
  if not {*BASELINES} <= {*after}:
    return None

  means = {name: np.nanmean(own, 1) for name, own in after.items()}  # [S]

  def compare(pairs):
    """Return {pair: the first minus the second, and Holm's p}."""
    gaps = [after[one] - after[other] for one, other in pairs]
    found = [over_paired_clients(gap) for gap in gaps]
    return dict(zip(pairs, zip(found, holm(found), strict=True), strict=True))

  against = compare(
    [(one, base) for base in BASELINES for one in after if one != base]
  )
  best = max(means, key=lambda method: means[method].mean())
  peers = tuple(
    one if other == best else other
    for (one, other), (_, p) in compare([*combinations(after, 2)]).items()
    if best in (one, other) and p >= LEVEL
  )
  rows = tuple(_row(form, partition, entry, against) for entry in entries)
  return Board(partition, rows, best, peers)


def _row(
  form: Form,
  partition: str,
  entry: Entry,
  against: Mapping[tuple[str, str], tuple[Difference, float]],
) -> Row:
  choice, kind = entry.choice, 'method'
  if entry.method in BASELINES:
    kind = BASELINE
  elif entry.is_reference:
    kind = REFERENCE
  row = {
    'form': form.name,
    'partition': partition,
    'method': entry.method,
    'kind': kind,
    'seeds': ' '.join(map(str, form.seeds)),
    'learning_rate': choice and choice.rate,
    'is_end_of_grid': choice and choice.is_edge,
    'view': choice and choice.view,
    'validation': choice and choice.accuracy,
  }
  for view, accuracy in (('before', entry.before), ('after', entry.after)):
    numbers = [None] * 5
    if accuracy is not None:
      means = np.nanmean(accuracy, axis=1)  # [S]
      numbers = [*map(float, (means.mean(), means.min(), means.max()))]
      worst = [worst_decile(own, entry.fewest_tests) for own in accuracy]
      is_known = not np.isnan(worst).any()
      numbers += [float(np.mean(worst)) if is_known else None]
      numbers += [' '.join(f'{mean:.6f}' for mean in means)]
    names = '', '_lowest_seed', '_highest_seed', '_worst_tenth', '_by_seed'
    row |= dict(zip((f'{view}{name}' for name in names), numbers, strict=True))
  for base in BASELINES:
    one, p = against.get((entry.method, base), (None, None))
    for name in ('mean', 'low', 'high'):
      row[f'vs_{base}_{name}'] = one and getattr(one, name)
    row[f'vs_{base}_p'] = p
    row[f'vs_{base}_verdict'] = one and verdict_of(one.mean, p)
  costs = entry.costs or [None] * len(Costs._fields)
  row |= dict(zip(Costs._fields, costs, strict=True))
  return {**row, 'obstacle': entry.obstacle}


def verdict_of(mean: float, p: float) -> str:
  if p >= LEVEL:
    return OPEN
  return ABOVE if mean > 0 else BELOW


def judged_again(rows: Sequence[Row]) -> list[Row]:
  """Return rows of a file that has no means by seed, by today's rule.

  Mean, lowest and highest are the means of three seeds, in an unknown order:
  the pairing of the widest interval stands for all, so that p is never too low.
  """
  rows = [dict(row) for row in rows]
  for partition in {row['partition'] for row in rows}:
    own = [row for row in rows if row['partition'] == partition]
    known = {row['method']: row for row in own}
    pairs = [
      (row, base)
      for base in BASELINES
      for row in own
      if row[f'vs_{base}_mean'] != ''
    ]
    found = [_widest(row, known[base]) for row, base in pairs]
    for (row, base), one, p in zip(pairs, found, holm(found), strict=True):
      numbers = {'low': one.low, 'high': one.high, 'p': p}
      numbers['verdict'] = verdict_of(one.mean, p)
      row |= {f'vs_{base}_{name}': _text(x) for name, x in numbers.items()}
  return rows


def _widest(row: Row, base: Row) -> Difference:
  one, other = (
    [3 * mean - low - high, low, high]
    for mean, low, high in (
      [
        float(x[f'after{part}'])
        for part in ('', '_lowest_seed', '_highest_seed')
      ]
      for x in (row, base)
    )
  )
  gaps = (np.subtract(one, order) for order in permutations(other))
  return max(map(over_seeds, gaps), key=lambda gap: gap.high - gap.low)


def compared_with(baseline: str, rows: Sequence[Row]) -> list[Row]:
  """Return the rows that are compared with a baseline, the highest first."""
  mean = f'vs_{baseline}_mean'
  found = [row for row in rows if row[mean] is not None]
  return sorted(found, key=lambda row: -row[mean])


# ---- Sentences ---------------------------------------------------------------


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  (best,) = (row for row in board.rows if row['method'] == board.best)
  words = f'not distinguishable from it: {_names(board.peers)}.'
  if not board.peers:
    words = 'distinguishable from all others.'
  elif len(board.peers) == len(compared_with(BASELINES[0], board.rows)):
    words = 'no method is distinguishable from it.'
  return [
    f'Highest: {display_name(board.best)}, {best["after"]:.1f} % on average '
    f'over clients after personalisation; {words}',
    *(_against(base, compared_with(base, board.rows)) for base in BASELINES),
    *(
      f'{display_name(row["method"])} {row["obstacle"]}.'
      for row in board.rows
      if row['obstacle']
    ),
  ]


def baseline_name(method: str) -> str:
  """Return how a baseline is called: FedAvg is fine-tuned."""
  name = display_name(method)
  return f'{name} + fine-tuning' if method == 'fedavg' else name


def _against(baseline: str, rows: Sequence[Row]) -> str:
  """Return who is above a baseline, below it, and neither."""
  found = {verdict: [] for verdict in VERDICTS}
  for row in rows:
    found[row[f'vs_{baseline}_verdict']].append(row)
  above, below = (
    ', '.join(
      f'{display_name(row["method"])} ({row[f"vs_{baseline}_mean"]:+.1f})'
      for row in found[verdict]
    )
    for verdict in (ABOVE, BELOW)
  )
  return (
    f'Against {baseline_name(baseline)}, above: {above or "none"}; '
    f'below: {below or "none"}; not distinguishable from it: '
    f'{_names(row["method"] for row in found[OPEN])}.'
  )


def _names(methods: Iterable[str]) -> str:
  return ', '.join(map(display_name, methods)) or 'none'


# ---- The file, and that of other seeds ---------------------------------------


def write(rows: Sequence[Row], path: pathlib.Path) -> None:
  texts = [{name: _text(row[name]) for name in row} for row in rows]
  atomic_files.write_csv(path, [*rows[0]], texts)


def _text(value: Any) -> str:
  if isinstance(value, float):
    return f'{value:.6g}' if value < 1000 else f'{value:.0f}'
  return '' if value is None else str(value)


def read(
  path: str | os.PathLike, form: str, seeds: Sequence[int] = ()
) -> list[Row]:
  """Return the rows of a leaderboard, none of these seeds; refuse others."""
  cause = 'a CSV of something else, or of another form'
  try:
    with open(path, newline='') as file:
      rows = list(csv.DictReader(file))
  except (OSError, UnicodeDecodeError) as error:
    rows, cause = [], f'{getattr(error, "strerror", None) or error}'.lower()
  if {row.get('form') for row in rows} == {form}:
    own = {word for row in rows for word in row['seeds'].split()}
    if not own & {*map(str, seeds)}:
      return rows
    cause = f'it has the seeds {rows[0]["seeds"]}, and one of them is trained'
  raise bad_input(
    'against',
    got=str(path),
    expected=f'the CSV of a leaderboard, of the form {form} and other seeds',
    choices=[f'--seeds=3,4,5, and runs/leaderboard/{form}_seeds_0_1_2.csv'],
    cause=cause,
  )


def changed_verdicts(rows: Sequence[Row], others: Sequence[Row]) -> list[str]:
  """Return sentences: how many verdicts are those of the others, which not.

  Only methods that both have are compared; [] without any.
  """
  known = {tuple(row[name] for name in KEY): row for row in others}
  same, contrary, weaker = 0, [], []
  for row in rows:
    other = known.get(tuple(row[name] for name in KEY), {})
    for base in BASELINES:
      column = f'vs_{base}_verdict'
      here, there = row[column], other.get(column)
      if not here or not there:
        continue
      if here == there:
        same += 1
        continue
      opposed = {here, there} == {ABOVE, BELOW}
      (contrary if opposed else weaker).append(
        f'{row["partition"]}, {display_name(row["method"])} against '
        f'{baseline_name(base)}: {here}, there {there}.'
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

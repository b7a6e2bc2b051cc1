"""The rows of one partition, and their verdicts in words.

Two families of `results/statistics/differences.py`: all comparisons with the
baselines, and, for the best method, all pairs. A method that diverged counts in
both. A value is None where a method has no such number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.evaluation.fairness import negative_transfer
from fedjax_pfl.evaluation.measures import MEASURES, Measure, over_clients
from fedjax_pfl.results.runs.entry import (
  METHOD,
  REFERENCE,
  Costs,
  Counts,
  Entry,
)
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.differences import (
  ABOVE,
  BELOW,
  OPEN,
  WITHIN,
  Verdict,
  behind_best,
  compare,
)

VERDICTS = ABOVE, BELOW, WITHIN, OPEN
BASELINE = 'baseline'
ALONE = paper_name('local_only')  # it measures negative transfer

Row = dict[str, Any]  # of a method


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  partition: str
  baselines: tuple[str, ...]
  rows: tuple[Row, ...]
  best: str  # the method with the highest mean
  peers: tuple[str, ...]  # those that are not distinguishable from it


def make_board(
  about: About, partition: str, entries: Sequence[Entry]
) -> Board | None:
  """Return the board; None without the numbers of the baselines."""
  family = {one.method: one.after for one in entries if one.kind == METHOD}
  after = {name: own.accuracy for name, own in family.items() if own}
  if not {*about.baselines} <= {*after}:
    return None
  by_seed = {name: dict(enumerate(after.get(name, ()))) for name in family}
  same_clients = partition in about.same_clients
  others = [(one, base) for base in about.baselines for one in family]
  others = [(one, base) for one, base in others if one != base]
  against = compare(by_seed, others, same_clients)
  best = max(after, key=lambda name: np.nanmean(after[name], 1).mean())
  peers = []
  for name, verdict in behind_best(by_seed, best, same_clients).items():
    # Of the best and a baseline both families count.
    words = verdict.word, against.get((best, name), verdict).word
    peers += [name] * (ABOVE not in words)
  shown = {paper_name(method): method for method in after}
  alone = after.get(shown.get(ALONE, ''))
  rows = [_row(about, partition, one, against, alone) for one in entries]
  # The highest first, then those that are not compared.
  rows.sort(key=lambda row: (row['kind'] == REFERENCE, -(row['after'] or 0.0)))
  return Board(partition, about.baselines, tuple(rows), best, tuple(peers))


def _row(
  about: About,
  partition: str,
  entry: Entry,
  against: Mapping[tuple[str, str], Verdict],
  alone: np.ndarray | None,
) -> Row:
  choice = entry.choice
  row = {
    'form': about.name,
    'partition': partition,
    'method': entry.method,
    'kind': BASELINE if entry.method in about.baselines else entry.kind,
    'seeds': ' '.join(map(str, entry.seeds)),
    'learning_rate': choice and choice.fields.get('learning_rate'),
    'settings': choice and settings_in_words(choice.fields),
    'ends': choice and ', '.join(choice.ends),
    'view': choice and choice.view,
    'validation': choice and choice.accuracy,
  }
  for view, counts in (('before', entry.before), ('after', entry.after)):
    row |= _numbers(view, counts)
  row['worse_than_alone'] = None
  if entry.after is not None:
    own = entry.after.accuracy
    is_alone = paper_name(entry.method) == ALONE
    if alone is not None and entry.kind == METHOD and not is_alone:
      row['worse_than_alone'] = negative_transfer(own, alone)
  for base in about.baselines:
    one = against.get((entry.method, base))
    for name in ('mean', 'low', 'high'):
      row[f'vs_{base}_{name}'] = one and getattr(one.gap, name)
    row[f'vs_{base}_p'] = one and one.p
    row[f'vs_{base}_p_within'] = one and one.p_within
    row[f'vs_{base}_verdict'] = one and one.word
  costs = np.array(entry.costs)  # [S, costs]
  row |= dict.fromkeys(Costs._fields)
  if entry.costs:
    row |= Costs(*map(float, costs.mean(0)))._asdict()
    row['seconds'] = float(np.median(costs[:, -1]))  # the first compiles
  return {**row, 'obstacle': entry.obstacle}


def compared() -> list[Measure]:
  """Return the measures of which a board has columns, before and after."""
  return [measure for measure in MEASURES if measure.compared]


def _numbers(view: str, counts: Counts | None) -> Row:
  measures = compared()
  names = '', '_lowest_seed', '_highest_seed', '_by_seed'
  names += tuple(f'_{measure.column}' for measure in measures)
  numbers: list[Any] = [None] * len(names)
  if counts is not None:
    means = counts.means
    numbers = [*map(float, (means.mean(), means.min(), means.max()))]
    numbers.append(' '.join(f'{mean:.6f}' for mean in means))
    pairs = zip(counts.accuracy, counts.total, strict=True)
    seeds = [over_clients(*pair) for pair in pairs]
    for measure in measures:
      mean = float(np.mean([seed[measure.name] for seed in seeds]))
      numbers.append(None if np.isnan(mean) else mean)
  return dict(zip((f'{view}{name}' for name in names), numbers, strict=True))


def settings_in_words(fields: Mapping[str, Any]) -> str:
  """Return 'learning_rate=0.01, hp.mu=0.1'."""
  return ', '.join(f'{name}={value}' for name, value in fields.items())


def compared_with(baseline: str, rows: Sequence[Row]) -> list[Row]:
  return [row for row in rows if row[f'vs_{baseline}_mean'] is not None]


# ---- Sentences ---------------------------------------------------------------


def not_finished(about: About, boards: Sequence[Board]) -> list[str]:
  """Return a sentence for each partition that misses methods."""
  done, whole = {one.partition: len(one.rows) for one in boards}, about.methods
  return [
    f'Not finished: {name} has {done.get(name, 0)} of {len(whole)} methods.'
    for name in about.partitions
    if done.get(name, 0) < len(whole)
  ]


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  (best,) = (row for row in board.rows if row['method'] == board.best)
  words = f'not distinguishable from it: {_names(board.peers)}.'
  if not board.peers:
    words = 'distinguishable from all others.'
  elif len(board.peers) == len(compared_with(board.baselines[0], board.rows)):
    words = 'no method is distinguishable from it.'
  found = [
    f'Highest: {paper_name(board.best)}, {best["after"]:.1f} % on average '
    f'over clients after personalisation; {words}'
  ]
  for base in board.baselines:
    found.append(_against(base, compared_with(base, board.rows)))
  for row in board.rows:
    if row['obstacle']:
      found.append(f'{paper_name(row["method"])} {row["obstacle"]}.')
  return found + _ends(board.rows)


def _against(baseline: str, rows: Sequence[Row]) -> str:
  """Return who is above a baseline, below it, and neither."""
  found = {verdict: [] for verdict in VERDICTS}
  for row in rows:
    found[row[f'vs_{baseline}_verdict']].append(row)
  above, below = (
    ', '.join(
      f'{paper_name(row["method"])} ({row[f"vs_{baseline}_mean"]:+.1f})'
      for row in found[verdict]
    )
    for verdict in (ABOVE, BELOW)
  )
  close = _names(row['method'] for row in found[WITHIN])
  equal = f'within one point of it: {close}; ' if found[WITHIN] else ''
  return (
    f'Against {paper_name(baseline)}, above: {above or "none"}; '
    f'below: {below or "none"}; {equal}not distinguishable from it: '
    f'{_names(row["method"] for row in found[OPEN])}.'
  )


def _ends(rows: Sequence[Row]) -> list[str]:
  """Return a sentence on choices at an end of what was tried."""
  if not (own := [row for row in rows if row['ends']]):
    return []
  named = ', '.join(f'{paper_name(r["method"])} ({r["ends"]})' for r in own)
  words = 'The choice is the lowest or the highest value that was tried for'
  return [f'{words} {len(own)} of {len(rows)} methods: {named}.']


def _names(methods: Iterable[str]) -> str:
  return ', '.join(map(paper_name, methods)) or 'none'

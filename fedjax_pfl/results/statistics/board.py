"""The rows of one partition, and their verdicts in words.

Two families of `results/statistics/differences.py`: all comparisons with the
baselines, and, for the best method, all pairs. A method that diverged counts in
both. A value is None where a method has no such number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
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
  compare,
)
from fedjax_pfl.results.statistics.standing import (
  ALONE,
  Place,
  lead,
  rank,
  shortened,
  worse_than_alone,
)

VERDICTS = ABOVE, BELOW, WITHIN, OPEN
BASELINE = 'baseline'

Row = dict[str, Any]  # of a method
Against = Mapping[tuple[str, str], Verdict]  # {(method, baseline): verdict}


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  about: About
  partition: str
  rows: tuple[Row, ...]
  places: tuple[Place, ...]  # of those that are compared, the highest first

  @property
  def baselines(self) -> tuple[str, ...]:
    return self.about.baselines

  @property
  def best(self) -> set[str]:
    """Return the highest, and what is not distinguishable; {} of one seed."""
    is_decided = any(place.verdict for place in self.places)
    return {x.name for x in self.places if is_decided and x.is_open}


def make_board(
  about: About, partition: str, entries: Sequence[Entry]
) -> Board | None:
  """Return the board; None without the numbers of the baselines."""
  family = {one.method: one.after for one in entries if one.kind == METHOD}
  by_seed = {
    name: dict(enumerate(own.accuracy if own else ()))
    for name, own in family.items()
  }
  if not all(by_seed.get(name) for name in about.baselines):
    return None
  same_clients = partition in about.same_clients
  pairs = [(one, base) for base in about.baselines for one in family]
  pairs = [(one, base) for one, base in pairs if one != base]
  against = compare(by_seed, pairs, same_clients)
  places = []
  for place in rank(by_seed, same_clients):
    best = places[0].name if places else ''
    verdict = against.get((best, place.name))
    if verdict and verdict.word == ABOVE:
      # Of the best and a baseline both families count.
      place = place._replace(verdict=verdict)
    places.append(place)
  alone = [x for x in by_seed if paper_name(x) == paper_name(ALONE)]
  worse = worse_than_alone(by_seed, alone)
  rows = [_row(about, partition, one, against, worse) for one in entries]
  # The highest first, then those that are not compared.
  rows.sort(key=lambda row: (row['kind'] == REFERENCE, -(row['after'] or 0.0)))
  return Board(about, partition, tuple(rows), tuple(places))


def _row(
  about: About,
  partition: str,
  entry: Entry,
  against: Against,
  worse: Mapping[str, float],
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
  row['worse_than_alone'] = worse.get(entry.method)
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
  found = [
    lead([one._replace(name=paper_name(one.name)) for one in board.places])
  ]
  for base in board.baselines:
    if rows := compared_with(base, board.rows):
      found.append(_against(base, rows))
  for row in board.rows:
    if row['obstacle']:
      found.append(f'{paper_name(row["method"])} {row["obstacle"]}.')
  return found + _ends(board.rows)


def _against(baseline: str, rows: Sequence[Row]) -> str:
  """Return who is above a baseline, below it, and neither."""
  parts = []
  for verdict in VERDICTS:
    named = [
      f'{paper_name(row["method"])} ({row[f"vs_{baseline}_mean"]:+.1f})'
      for row in rows
      if row[f'vs_{baseline}_verdict'] == verdict
    ]
    if verdict == OPEN:
      named = shortened(named)
    parts += [f'{verdict}: {", ".join(named)}'] * bool(named)
  return f'Against {paper_name(baseline)}, {"; ".join(parts)}.'


def _ends(rows: Sequence[Row]) -> list[str]:
  """Return a sentence on choices at an end of what was tried."""
  if not (own := [row for row in rows if row['ends']]):
    return []
  named = ', '.join(f'{paper_name(r["method"])} ({r["ends"]})' for r in own)
  words = 'The choice is the lowest or the highest value that was tried for'
  return [f'{words} {len(own)} of {len(rows)} methods: {named}.']

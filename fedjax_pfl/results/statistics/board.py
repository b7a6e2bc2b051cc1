"""The rows of one partition, and their verdicts in words.

Of each measure there are two families of `results/statistics/differences.py`:
all comparisons with the baselines, and, for the best method, all pairs. A
method that diverged counts in both. A value is None where a method has no such
number. The first measure of a comparison is that by which rows are in order.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  MEASURES,
  Measure,
  over_clients,
)
from fedjax_pfl.results.runs.entry import (
  METHOD,
  REFERENCE,
  Costs,
  Counts,
  Entry,
)
from fedjax_pfl.results.runs.stored_counts import About
from fedjax_pfl.results.statistics.choice import in_words
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


class Standing(NamedTuple):
  """The methods in one measure."""

  against: Against
  places: tuple[Place, ...]  # of those that are compared, the best first
  worse: Mapping[str, float]  # {method: percent of clients better off alone}
  undefined: int  # clients with tests for whom it is not defined, at most


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  about: About
  partition: str
  rows: tuple[Row, ...]
  standings: Mapping[str, Standing]  # by the name of the measure

  def best(self, measure: Measure) -> set[str]:
    """Return the best, and what is not distinguishable; {} of one seed."""
    places = self.standings[measure.name].places
    is_decided = any(place.verdict for place in places)
    return {x.name for x in places if is_decided and x.is_open}


def make_board(
  about: About, partition: str, entries: Sequence[Entry]
) -> Board | None:
  """Return the board; None without the numbers of the baselines."""
  family = {x.method: x.after for x in entries if x.kind == METHOD}
  if not all(family.get(name) for name in about.baselines):
    return None
  alike, main = partition in about.same_clients, about.main
  standings = {
    measure.name: _standing(about.baselines, family, alike, measure)
    for measure in about.measured
  }
  names = dict.fromkeys(itertools.chain(*(entry.left_out for entry in entries)))
  rows = [
    _row(about, partition, entry, standings) | _left_out(entry, names)
    for entry in entries
  ]

  def order(row):  # the best first, then those that are not compared
    is_known = row['after'] is not None
    value = -main.sign * row['after'] if is_known else math.inf
    return row['kind'] == REFERENCE, value

  return Board(about, partition, tuple(sorted(rows, key=order)), standings)


def _standing(
  baselines: Sequence[str],
  family: Mapping[str, Counts | None],
  same_clients: bool,
  measure: Measure,
) -> Standing:
  values = {
    name: dict(enumerate(counts.of(measure.name) if counts else ()))
    for name, counts in family.items()
  }
  pairs = [(x, base) for base in baselines for x in values if x != base]
  against = compare(values, pairs, same_clients, measure)
  places = rank(values, same_clients, measure)
  # Of the best and a baseline both families count.
  ahead = {pair: x for pair, x in against.items() if x.is_ahead}
  places = [
    x._replace(verdict=ahead.get((places[0].name, x.name), x.verdict))
    for x in places
  ]
  alone = [name for name in family if paper_name(name) == paper_name(ALONE)]
  worse = worse_than_alone(values, alone, measure.sign)
  holes = [
    np.isnan(counts.of(measure.name)) & (counts.total > 0)
    for counts in filter(None, family.values())
  ]
  undefined = max(hole.any(0).sum() for hole in holes)
  return Standing(against, tuple(places), worse, undefined)


def _row(
  about: About,
  partition: str,
  entry: Entry,
  standings: Mapping[str, Standing],
) -> Row:
  choice = entry.choice
  row = {
    'form': about.name,
    'partition': partition,
    'method': entry.method,
    'kind': BASELINE if entry.method in about.baselines else entry.kind,
    'seeds': ' '.join(map(str, entry.seeds)),
    'learning_rate': choice and choice.fields.get('learning_rate'),
    'settings': choice and in_words(choice.fields),
    'ends': choice and ', '.join(choice.ends),
    'view': choice and choice.view,
    'validation': choice and choice.value,
  }
  for view, counts in (('before', entry.before), ('after', entry.after)):
    for measure in about.measured:
      row |= _numbers(f'{view}{about.tag(measure)}', counts, measure)
    row |= _of_clients(view, counts, about.main)
  worse = standings[about.main.name].worse
  row['worse_than_alone'] = worse.get(entry.method)
  for measure in about.measured:
    for base in about.baselines:
      verdict = standings[measure.name].against.get((entry.method, base))
      row |= _difference(f'vs_{base}{about.tag(measure)}', verdict)
  costs = np.array(entry.costs)  # [S, costs]
  row |= dict.fromkeys(Costs._fields)
  if entry.costs:
    row |= Costs(*map(float, costs.mean(0)))._asdict()
    row['seconds'] = float(np.median(costs[:, -1]))  # the first compiles
  return {**row, 'obstacle': entry.obstacle}


def _left_out(entry: Entry, names: Iterable[str]) -> Row:
  """Return the mean of each number over the seeds that have it."""
  values = {name: np.array(entry.left_out.get(name, ())) for name in names}
  known = {name: value[np.isfinite(value)] for name, value in values.items()}
  return {
    name: float(x.mean()) if x.size else None for name, x in known.items()
  }


def compared() -> list[Measure]:
  """Return the measures of all clients of which a board has columns."""
  return [x for x in MEASURES if x.compared and x.of_clients]


def _difference(prefix: str, verdict: Verdict | None) -> Row:
  gap = verdict and verdict.gap
  return {
    f'{prefix}_mean': gap and gap.mean,
    f'{prefix}_low': gap and gap.low,
    f'{prefix}_high': gap and gap.high,
    f'{prefix}_p': verdict and verdict.p,
    f'{prefix}_p_within': verdict and verdict.p_within,
    f'{prefix}_verdict': verdict and verdict.word,
  }


def _numbers(prefix: str, counts: Counts | None, measure: Measure) -> Row:
  """Return mean, lowest and highest seed of a measure, and each seed."""
  means = np.array([]) if counts is None else counts.means(measure.name)
  numbers: list[Any] = [None] * 4
  if means.size and not np.isnan(means).any():
    form = '.6f' if measure.unit == '%' else '.8g'
    numbers = [*map(float, (means.mean(), means.min(), means.max()))]
    numbers.append(' '.join(format(mean, form) for mean in means))
  names = '', '_lowest_seed', '_highest_seed', '_by_seed'
  return dict(zip((f'{prefix}{name}' for name in names), numbers, strict=True))


def _of_clients(view: str, counts: Counts | None, main: Measure) -> Row:
  """Return what follows from the main numbers of all clients."""
  numbers = dict.fromkeys(f'{view}_{x.column}' for x in compared())
  if counts is not None:
    pairs = zip(counts.of(main.name), counts.total, strict=True)
    seeds = [over_clients(*pair, main.sign) for pair in pairs]
    for measure in compared():
      mean = float(np.mean([seed[measure.name] for seed in seeds]))
      numbers[f'{view}_{measure.column}'] = None if np.isnan(mean) else mean
  return numbers


def compared_with(baseline: str, rows: Sequence[Row]) -> list[Row]:
  return [row for row in rows if row[f'vs_{baseline}_mean'] is not None]


# ---- Sentences ---------------------------------------------------------------


def not_finished(about: About, boards: Sequence[Board]) -> list[str]:
  """Return a sentence for each partition that misses methods."""
  done, whole = (
    {board.partition: len(board.rows) for board in boards},
    about.methods,
  )
  return [
    f'Not finished: {name} has {done.get(name, 0)} of {len(whole)} methods.'
    for name in about.partitions
    if done.get(name, 0) < len(whole)
  ]


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  found = []
  for measure in board.about.measured:
    standing = board.standings[measure.name]
    named = [x._replace(name=paper_name(x.name)) for x in standing.places]
    is_plain = measure == ACCURACY == board.about.main
    head = '' if is_plain else f'{measure.head}. '
    rest = f' Clients for whom it is not defined: {standing.undefined}.'
    rest *= bool(standing.undefined)
    found += [head + lead(named, measure) + rest] * bool(named)
  for base in board.about.baselines:
    if rows := compared_with(base, board.rows):
      found.append(_against(base, rows, board.about.main))
  for row in board.rows:
    if row['obstacle']:
      found.append(f'{paper_name(row["method"])} {row["obstacle"]}.')
  return found + _ends(board.rows)


def _against(baseline: str, rows: Sequence[Row], measure: Measure) -> str:
  """Return who is above a baseline, below it, and neither."""
  parts = []
  for verdict in VERDICTS:
    named = [
      f'{paper_name(row["method"])} '
      f'({measure.signed(row[f"vs_{baseline}_mean"], short=True)})'
      for row in rows
      if row[f'vs_{baseline}_verdict'] == verdict
    ]
    if verdict == OPEN:
      named = shortened(named)
    parts += [f'{verdict}: {", ".join(named)}'] * bool(named)
  return f'Against {paper_name(baseline)}, {"; ".join(parts)}.'


def _ends(rows: Sequence[Row]) -> list[str]:
  """Return a sentence on choices at an end of what was tried."""
  if not (bound := [row for row in rows if row['ends']]):
    return []
  named = ', '.join(f'{paper_name(r["method"])} ({r["ends"]})' for r in bound)
  words = 'The choice is the lowest or the highest value that was tried for'
  return [f'{words} {len(bound)} of {len(rows)} methods: {named}.']

"""The rows of one partition, and their verdicts in words.

Of each measure there are two families of `results/statistics/differences.py`:
all comparisons with the baselines, and, for the best method, all pairs. A
method that diverged counts in both. The first measure of a comparison is that
by which rows are in order.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.evaluation.choices import mean_of_clients
from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  MEASURES,
  Measure,
  measure_of,
  over_clients,
)
from fedjax_pfl.results.runs.entry import (
  METHOD,
  REFERENCE,
  Costs,
  Counts,
  Entry,
)
from fedjax_pfl.results.runs.stored_counts import VIEWS, About
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
BASELINE = 'baseline'  # the kind of an entry on a board


class Standing(NamedTuple):
  """The methods in one measure."""

  against: Mapping[tuple[str, str], Verdict]  # by method and baseline
  places: tuple[Place, ...]  # of those that are compared, the best first
  worse: Mapping[str, float]  # {method: percent of clients better off alone}
  undefined: int  # clients with tests for whom it is not defined, at most


class Board(NamedTuple):
  """A partition: what its methods did, and what can be told apart."""

  about: About
  partition: str
  entries: tuple[Entry, ...]  # the best first, then what is not compared
  # {(method, view, measure): of each seed, [S]}; view '': left out, [1].
  numbers: Mapping[tuple[str, str, Measure], np.ndarray]
  standings: Mapping[Measure, Standing]

  def best(self, measure: Measure) -> set[str]:
    """Return the best, and what is not distinguishable; {} of one seed."""
    places = self.standings[measure].places
    is_decided = any(place.verdict for place in places)
    return {x.name for x in places if is_decided and x.is_open}

  def seeds(self, method: str, view: str, measure: Measure) -> np.ndarray:
    """Return the mean over clients of each seed, [S]; NaN without."""
    return self.numbers.get((method, view, measure), np.array([np.nan]))

  def mean(self, method: str, view: str, measure: Measure) -> float:
    return float(self.seeds(method, view, measure).mean())

  def has(self, view: str, measure: Measure) -> bool:
    means = [self.mean(x.method, view, measure) for x in self.entries]
    return not np.isnan(means).all()

  @property
  def left_out(self) -> list[Measure]:
    """Return the measures of whom a server left out, that any method has."""
    keys = dict.fromkeys(key[1:] for key in self.numbers)
    return [measure for view, measure in keys if not view]


def make_board(
  about: About, partition: str, entries: Sequence[Entry]
) -> Board | None:
  """Return the board; None without the numbers of the baselines."""
  family = {x.method: x.after for x in entries if x.kind == METHOD}
  if not all(family.get(name) for name in about.baselines):
    return None
  alike, baselines = partition in about.same_clients, about.baselines
  standings = {
    measure: _standing(baselines, family, alike, measure)
    for measure in about.measured
  }
  places = standings[about.main].places
  order = {place.name: at for at, place in enumerate(places)}
  key = lambda x: (x.kind == REFERENCE, order.get(x.method, len(order)))
  kinds = dict.fromkeys(baselines, BASELINE)
  entries = tuple(
    x._replace(kind=kinds.get(x.method, x.kind))
    for x in sorted(entries, key=key)
  )
  numbers = _numbers(about, entries)
  return Board(about, partition, entries, numbers, standings)


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


def _numbers(
  about: About, entries: Sequence[Entry]
) -> dict[tuple[str, str, Measure], np.ndarray]:
  numbers, main = {}, about.main
  for entry in entries:
    name = entry.method
    for view, counts in zip(VIEWS, (entry.before, entry.after), strict=True):
      if counts:
        numbers |= {
          (name, view, x): counts.means(x.name) for x in about.measured
        }
        pairs = zip(counts.of(main.name), counts.total, strict=True)
        seeds = [over_clients(*pair, main.sign) for pair in pairs]
        for measure in compared():
          values = [seed[measure.name] for seed in seeds]
          numbers[name, view, measure] = np.array(values)
    for kind, values in entry.left_out.items():  # the seeds that have it
      mean = mean_of_clients(np.array(values))
      numbers[name, '', measure_of(kind)] = np.array([mean])
  return numbers


def mean_costs(entry: Entry) -> Costs:
  """Return the means over seeds; of the time the median; NaN without."""
  costs = np.array(entry.costs or [[np.nan] * len(Costs._fields)])
  seconds = float(np.median(costs[:, -1]))  # the first compiles
  return Costs(*costs.mean(0).tolist())._replace(seconds=seconds)


def compared() -> list[Measure]:
  """Return the measures of all clients of which a board has columns."""
  return [x for x in MEASURES if x.compared and x.of_clients]


# ---- Sentences ---------------------------------------------------------------


def not_finished(about: About, boards: Sequence[Board]) -> list[str]:
  """Return a sentence for each partition that misses methods."""
  done = {board.partition: len(board.entries) for board in boards}
  number = len(about.methods)
  return [
    f'Not finished: {name} has {done.get(name, 0)} of {number} methods.'
    for name in about.partitions
    if done.get(name, 0) < number
  ]


def sentences(board: Board) -> list[str]:
  """Return the verdicts of a partition: the best, then each baseline."""
  texts = []
  for measure in board.about.measured:
    standing = board.standings[measure]
    named = [x._replace(name=paper_name(x.name)) for x in standing.places]
    is_plain = measure == ACCURACY == board.about.main
    head = '' if is_plain else f'{measure.head}. '
    rest = f' Clients for whom it is not defined: {standing.undefined}.'
    rest *= bool(standing.undefined)
    texts += [head + lead(named, measure) + rest] * bool(named)
  for base in board.about.baselines:
    texts += _against(base, board)
  texts += [
    f'{paper_name(x.method)} {x.obstacle}.' for x in board.entries if x.obstacle
  ]
  return texts + _ends(board.entries)


def _against(baseline: str, board: Board) -> list[str]:
  """Return who is above a baseline, below it, and neither."""
  main, named = board.about.main, {word: [] for word in VERDICTS}
  for entry in board.entries:
    if verdict := board.standings[main].against.get((entry.method, baseline)):
      gap = main.signed(verdict.gap.mean, short=True)
      named[verdict.word].append(f'{paper_name(entry.method)} ({gap})')
  named[OPEN] = shortened(named[OPEN])
  parts = [f'{word}: {", ".join(x)}' for word, x in named.items() if x]
  head = f'Against {paper_name(baseline)}, '
  return [f'{head}{"; ".join(parts)}.'] * bool(parts)


def _ends(entries: Sequence[Entry]) -> list[str]:
  """Return a sentence on choices at an end of what was tried."""
  named = [
    f'{paper_name(x.method)} ({", ".join(x.choice.ends)})'
    for x in entries
    if x.choice and x.choice.ends
  ]
  return [
    'The choice is the lowest or the highest value that was tried for '
    f'{len(named)} of {len(entries)} methods: {", ".join(named)}.'
  ] * bool(named)

"""What a folder of results says of a claim.

  shown         above 0, and Holm's adjusted p over all comparisons of the file
                is below 0.05
  suggested     its own 95 % interval is above 0, but p is not
  contradicted  below 0, and p is below 0.05
  doubted       its own interval is below 0, but p is not below 0.05
  not shown     the interval contains 0, or there is none: of one seed
  half run      some of the cells have a number, not all with one seed
  not run       no cell has a number
  not stored    like with like: no run has views of the same kind

The file states how many comparisons there are, before any is run: Holm counts
them all. Every comparison is judged as published, and like with like.
Seeds that were added after a look at those of `PLANNED` decide nothing.
A claim of several comparisons counts their verdicts. Nothing is written, and no
images are needed.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.reproduction.claims.claims_file import Claim, Comparison, Term
from experiments.reproduction.compare import (
  Compared,
  Measured,
  Score,
  compare_all,
  published_error,
)
from experiments.reproduction.results import Results
from fedjax_pfl.results.statistics import differences
from fedjax_pfl.results.statistics.differences import (
  LEVEL,
  Difference,
  holm,
  variance_of_mean,
)

SHOWN, SUGGESTED, NOT_SHOWN = 'shown', 'suggested', 'not shown'
CONTRADICTED, DOUBTED = 'contradicted', 'doubted'
HALF_RUN, NOT_RUN = 'half run', 'not run'
NOT_STORED = 'not stored'
VERDICTS = (
  *(SHOWN, SUGGESTED, NOT_SHOWN, CONTRADICTED, DOUBTED),
  *(HALF_RUN, NOT_RUN, NOT_STORED),
)
PLANNED = range(3)  # seeds; results/claims.toml has the rule of stopping

# A cell of a claim, and it with our number beside the printed one.
Pair = tuple[Term, Compared]
Signed = tuple[int, Score]


class Judged(NamedTuple):
  """A comparison with its verdict."""

  stated: Comparison
  verdict: str
  # In points, with its standard error, None if not known; None: print has no
  # number of a view.
  printed: tuple[float, float | None] | None
  cells: tuple[Pair, ...]  # of its terms
  difference: Difference | None = None  # None: not run
  measured: tuple[tuple[Measured, ...], ...] = ()  # by seed, then by term
  diverged: tuple[str, ...] = ()  # methods whose training of a seed diverged
  p: float = math.nan  # Holm's, over all comparisons
  added: tuple[tuple[Measured, ...], ...] = ()  # of seeds that decide nothing

  @property
  def signed(self) -> list[list[Signed]]:
    """Return the numbers of each seed with the signs of their terms."""
    signs = [term.sign for term in self.stated.terms]
    scores = [[x.score for x in seed] for seed in self.measured]
    return [[*zip(signs, seed, strict=True)] for seed in scores]

  def over_seeds(self) -> Difference:
    """Return the difference; its error is not below that of the clients.

    Of a number of the server, or of a row without clients, seeds alone count.
    """
    sums = [sum(sign * x.mean for sign, x in seed) for seed in self.signed]
    floor = 0.0
    if all(x.clients is not None for seed in self.signed for _, x in seed):
      gaps = itertools.chain(*map(differences_by_client, self.signed))
      floor = math.sqrt(sum(map(variance_of_mean, gaps))) / len(sums)
    return differences.over_seeds(sums, floor)

  def with_added(self) -> 'Judged':
    every = self._replace(measured=self.measured + self.added)
    return every._replace(difference=every.over_seeds())


class Verdict(NamedTuple):
  """A claim with the verdicts of its comparisons."""

  claim: Claim
  judged: tuple[Judged, ...]  # as published
  like: tuple[Judged, ...]  # the same ones, like with like


def judge_all(claims: Sequence[Claim], results: Results) -> list[Verdict]:
  """Return the verdicts of all claims of a file: one family of Holm's."""
  stated = [comparison for claim in claims for comparison in claim.comparisons]
  published = decide([judge(comparison, results) for comparison in stated])
  like = published.copy()
  for at, comparison in enumerate(stated):
    if comparison.like:
      like[at] = judge(comparison._replace(terms=comparison.like), results)
    elif comparison.unlike:
      like[at] = Judged(comparison, NOT_STORED, None, ())
  pairs = iter(zip(published, decide(like), strict=True))
  of_claim = lambda claim: [next(pairs) for _ in claim.comparisons]
  return [Verdict(x, *zip(*of_claim(x), strict=True)) for x in claims]


def decide(judged: Sequence[Judged]) -> list[Judged]:
  """Return a family of comparisons with Holm's p and the verdicts."""
  gaps = [x.difference for x in judged]
  ps = holm([math.nan if gap is None else gap.p for gap in gaps])
  return [
    x if gap is None else x._replace(p=p, verdict=_word(gap.sign, p))
    for x, gap, p in zip(judged, gaps, ps, strict=True)
  ]


def _word(sign: int, p: float) -> str:
  if not sign:
    return NOT_SHOWN
  if p < LEVEL:
    return SHOWN if sign > 0 else CONTRADICTED
  return SUGGESTED if sign > 0 else DOUBTED


def judge(stated: Comparison, results: Results) -> Judged:
  """Return a comparison, not decided yet, over the seeds that all cells have.

  A cell with more seeds is compared with those that the others have.
  """
  compared = compare_all([term.cell for term in stated.terms], results)
  cells = tuple(zip(stated.terms, compared, strict=True))
  by_term = [{x.seed: x for x in ours.measured} for ours in compared]
  shared = sorted(set.intersection(*map(set, by_term)))
  every = {seed: tuple(term[seed] for term in by_term) for seed in shared}
  planned = tuple(every[seed] for seed in shared if seed in PLANNED)
  added = tuple(every[seed] for seed in shared if seed not in PLANNED)
  lost = dict.fromkeys(term.name for term, ours in cells if ours.diverged)
  verdict = HALF_RUN if any(by_term) else NOT_RUN
  judged = Judged(stated, verdict, printed_of(stated.terms), cells)
  judged = judged._replace(measured=planned, added=added, diverged=tuple(lost))
  return judged._replace(difference=judged.over_seeds()) if planned else judged


def differences_by_client(scores: Sequence[Signed]) -> list[np.ndarray]:
  """Return the signed sum of every client, an array for each partition.

  Clients without an accuracy in one of the methods are left out.
  """
  groups: dict[str, np.ndarray] = {}
  for sign, score in scores:
    groups[score.data] = groups.get(score.data, 0.0) + sign * score.clients
  return [group[np.isfinite(group)] for group in groups.values()]


def printed_of(terms: Sequence[Term]) -> tuple[float, float | None] | None:
  """Return the printed difference, as of methods with clients of their own."""
  if not all(term.is_printed for term in terms):
    return None
  published = [(term.sign, term.cell.published) for term in terms]
  errors = [published_error(cell) for _, cell in published]
  mean = sum(sign * cell.mean for sign, cell in published)
  return mean, None if None in errors else math.hypot(*errors)

"""What a folder of results says of a claim.

  shown         above 0: p < 0.05 of Student's t over seeds, adjusted by Holm's
                method for all comparisons of the file
  suggested     all of the 95 % interval is above 0, of this comparison alone
  contradicted  all of it is below 0: a doubt needs less than a claim
  not shown     it contains 0, or there is none
  half run      some of the cells have a number, not all with one seed
  not run       no cell has a number

A claim of several comparisons counts their verdicts. Nothing is written, and no
images are needed.
"""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.evaluation.differences import (
  Difference,
  Score,
  holm,
  stated_difference,
)
from fedjax_pfl.reproduction.claims.claims_file import Claim, Comparison, Term
from fedjax_pfl.reproduction.compare import (
  Compared,
  Measured,
  compare_all,
  published_error,
)
from fedjax_pfl.reproduction.results import Results

SHOWN, SUGGESTED, NOT_SHOWN = 'shown', 'suggested', 'not shown'
CONTRADICTED, HALF_RUN, NOT_RUN = 'contradicted', 'half run', 'not run'
VERDICTS = SHOWN, SUGGESTED, NOT_SHOWN, CONTRADICTED, HALF_RUN, NOT_RUN
# Of a comparison alone; `judge_all` knows what is shown.
OF_SIGN = {1: SUGGESTED, 0: NOT_SHOWN, -1: CONTRADICTED}
LEVEL = 0.05


# A cell of a claim, and it with our number beside the printed one.
Pair = tuple[Term, Compared]


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

  @property
  def signed(self) -> list[list[Score]]:
    """Return the numbers of each seed with the signs of their terms."""
    return [
      [
        one.score._replace(sign=term.sign)
        for term, one in zip(self.stated.terms, measured, strict=True)
      ]
      for measured in self.measured
    ]


class Verdict(NamedTuple):
  """A claim with the verdicts of its comparisons."""

  claim: Claim
  judged: tuple[Judged, ...]
  cells: tuple[Pair, ...]

  @property
  def counts(self) -> dict[str, int]:
    """Return {verdict: number of comparisons}, in the order of VERDICTS."""
    known = collections.Counter(one.verdict for one in self.judged)
    return {name: known[name] for name in VERDICTS if known[name]}


def judge_all(claims: Sequence[Claim], results: Results) -> list[Verdict]:
  """Return the verdicts of all claims of a file."""
  verdicts = [judge_claim(claim, results) for claim in claims]
  every = [one for verdict in verdicts for one in verdict.judged]
  ps = [one.difference.p if one.difference else math.nan for one in every]
  adjusted = iter(holm(ps))

  def decided(one):
    p = next(adjusted)
    is_shown = one.verdict == SUGGESTED and p < LEVEL
    return one._replace(verdict=SHOWN if is_shown else one.verdict)

  return [
    verdict._replace(judged=tuple(map(decided, verdict.judged)))
    for verdict in verdicts
  ]


def judge_claim(claim: Claim, results: Results) -> Verdict:
  judged = tuple(judge(one, results) for one in claim.comparisons)
  cells: dict[tuple, Pair] = {}
  for term, compared in (pair for one in judged for pair in one.cells):
    place = term.table, frozenset(term.where.split(',')), term.cell.reading
    cells.setdefault(place, (term, compared))
  return Verdict(claim, judged, tuple(cells.values()))


def judge(stated: Comparison, results: Results) -> Judged:
  """Return a comparison with its verdict, over the seeds that all cells have.

  A cell with more seeds is compared with those that the others have.
  """
  compared = compare_all([term.cell for term in stated.terms], results)
  cells = tuple(zip(stated.terms, compared, strict=True))
  by_term = [{one.seed: one for one in own.measured} for _, own in cells]
  shared = sorted(set.intersection(*map(set, by_term)))
  measured = tuple(tuple(one[seed] for one in by_term) for seed in shared)
  verdict = HALF_RUN if any(by_term) else NOT_RUN
  printed = printed_of(stated.terms)
  lost = dict.fromkeys(term.name for term, own in cells if own.diverged)
  runs = {'measured': measured, 'diverged': tuple(lost)}
  judged = Judged(stated, verdict, printed, cells, **runs)
  if not shared:
    return judged
  difference = stated_difference(judged.signed)
  return judged._replace(
    verdict=OF_SIGN[difference.sign], difference=difference
  )


def printed_of(terms: Sequence[Term]) -> tuple[float, float | None] | None:
  """Return the printed difference, as of methods with clients of their own."""
  if not all(term.is_printed for term in terms):
    return None
  published = [(term.sign, term.cell.published) for term in terms]
  errors = [published_error(one) for _, one in published]
  mean = sum(sign * one.mean for sign, one in published)
  return mean, None if None in errors else math.hypot(*errors)

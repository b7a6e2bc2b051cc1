"""What a folder of results says of a claim.

  shown         all of the 95 % interval is above 0
  contradicted  all of it is below 0
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

SHOWN, NOT_SHOWN, CONTRADICTED = 'shown', 'not shown', 'contradicted'
HALF_RUN, NOT_RUN = 'half run', 'not run'
VERDICTS = SHOWN, NOT_SHOWN, CONTRADICTED, HALF_RUN, NOT_RUN
OF_SIGN = {1: SHOWN, 0: NOT_SHOWN, -1: CONTRADICTED}


class PrintedDifference(NamedTuple):
  """The printed difference, in points."""

  mean: float
  error: float | None  # standard error; None: not known


class Beside(NamedTuple):
  """A cell of a claim, with our number beside the printed one."""

  term: Term
  compared: Compared  # without our number if it was not run
  measured: tuple[Measured, ...]  # our number with each seed


class Judged(NamedTuple):
  """A comparison with its verdict."""

  stated: Comparison
  verdict: str
  printed: PrintedDifference | None  # None: print has no number of a view
  cells: tuple[Beside, ...]  # of its terms
  difference: Difference | None = None  # None: not run
  measured: tuple[tuple[Measured, ...], ...] = ()  # by seed, then by term
  diverged: tuple[str, ...] = ()  # methods whose training diverged

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
  cells: tuple[Beside, ...]

  @property
  def counts(self) -> dict[str, int]:
    """Return {verdict: number of comparisons}, in the order of VERDICTS."""
    known = collections.Counter(one.verdict for one in self.judged)
    return {name: known[name] for name in VERDICTS if known[name]}


def judge_claim(claim: Claim, results: Results) -> Verdict:
  """Return a claim with the verdicts of its comparisons."""
  judged = tuple(judge(one, results) for one in claim.comparisons)
  cells: dict[tuple, Beside] = {}
  for one in judged:
    for beside in one.cells:
      term = beside.term
      where = frozenset(term.where.split(','))
      cells.setdefault((term.table, where, term.cell.reading), beside)
  return Verdict(claim, judged, tuple(cells.values()))


def judge(stated: Comparison, results: Results) -> Judged:
  """Return a comparison with its verdict, over the seeds that all cells have.

  A cell with more seeds is compared with those that the others have.
  """
  cells = tuple(_beside(term, results) for term in stated.terms)
  by_term = [{one.seed: one for one in beside.measured} for beside in cells]
  shared = sorted(set.intersection(*map(set, by_term)))
  verdict = HALF_RUN if any(by_term) else NOT_RUN
  judged = Judged(stated, verdict, printed_of(stated.terms), cells)
  if not shared:
    lost = (one.term.name for one in cells if one.compared.diverged)
    return judged._replace(diverged=tuple(dict.fromkeys(lost)))
  measured = tuple(tuple(one[seed] for one in by_term) for seed in shared)
  judged = judged._replace(measured=measured)
  difference = stated_difference(judged.signed)
  return judged._replace(
    verdict=OF_SIGN[difference.sign], difference=difference
  )


def printed_of(terms: Sequence[Term]) -> PrintedDifference | None:
  """Return the printed difference, as of methods with clients of their own."""
  if not all(term.is_printed for term in terms):
    return None
  published = [(term.sign, term.cell.published) for term in terms]
  errors = [published_error(one) for _, one in published]
  error = None if None in errors else math.hypot(*errors)
  mean = sum(sign * one.mean for sign, one in published)
  return PrintedDifference(mean, error)


def _beside(term: Term, results: Results) -> Beside:
  (compared,) = compare_all([term.cell], results)
  if not term.is_printed:  # that number is of another view
    compared = compared._replace(difference=None, tolerance=None, agrees=None)
  return Beside(term, compared, compared.measured)

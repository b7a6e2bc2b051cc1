"""What the results say of a claim.

  shown         all of the 95 % interval is above 0
  contradicted  all of it is below 0
  not shown     it contains 0, or there is none
  not run       a cell has no number with a seed that the others have

A claim of several comparisons counts their verdicts.
"""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.reproduction.claims import intervals, numbers
from fedjax_pfl.reproduction.claims.entries import Claim, Term
from fedjax_pfl.reproduction.claims.entries import Comparison as Stated
from fedjax_pfl.reproduction.claims.intervals import Interval, Number
from fedjax_pfl.reproduction.claims.numbers import Measured, Source
from fedjax_pfl.reproduction.comparison.compare import (
  Comparison,
  compare,
  over_seeds,
  published_error,
)

SHOWN, NOT_SHOWN = 'shown', 'not shown'
CONTRADICTED, NOT_RUN = 'contradicted', 'not run'
VERDICTS = SHOWN, NOT_SHOWN, CONTRADICTED, NOT_RUN


class Printed(NamedTuple):
  """The printed difference, in points."""

  difference: float
  error: float | None  # standard error; None: not known


class Judged(NamedTuple):
  """A comparison with its verdict."""

  stated: Stated
  verdict: str
  printed: Printed | None  # None: a view of which print has no number
  difference: float | None = None  # None: not run
  interval: Interval | None = None
  measured: tuple[tuple[Measured, ...], ...] = ()  # by seed, then by term
  diverged: tuple[str, ...] = ()  # methods whose training diverged


class Beside(NamedTuple):
  """A cell of a claim, with our number beside the printed one."""

  term: Term
  comparison: Comparison  # without our number if it was not run
  measured: tuple[Measured, ...]  # a seed each


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


def judge_all(claims: Sequence[Claim], source: Source) -> list[Verdict]:
  """Return every claim with its verdicts."""
  return [judge_claim(claim, source) for claim in claims]


def judge_claim(claim: Claim, source: Source) -> Verdict:
  """Return a claim with the verdicts of its comparisons."""
  judged = tuple(judge(one, source) for one in claim.comparisons)
  terms = {
    (term.table, frozenset(term.where.split(',')), term.cell.reading): term
    for one in claim.comparisons
    for term in one.terms
  }
  return Verdict(
    claim, judged, tuple(_beside(term, source) for term in terms.values())
  )


def judge(stated: Stated, source: Source) -> Judged:
  """Return a comparison with its verdict, over the seeds that all cells have.

  A cell with more seeds is compared with those that the others have.
  """
  by_term = [_seeds_of(term, source) for term in stated.terms]
  shared = sorted(set.intersection(*map(set, by_term)))
  printed = printed_of(stated.terms)
  if not shared:
    lost = [
      term.name
      for term in stated.terms
      if any(
        numbers.diverged(term.cell, seed, source)
        for seed in numbers.seeds_of(source)
      )
    ]
    return Judged(stated, NOT_RUN, printed, diverged=tuple(dict.fromkeys(lost)))
  measured = tuple(tuple(one[seed] for one in by_term) for seed in shared)
  signed = [signed_numbers(stated.terms, one) for one in measured]
  interval = intervals.interval(signed)
  difference = intervals.difference(signed)
  return Judged(
    stated, verdict_of(interval), printed, difference, interval, measured
  )


def verdict_of(interval: Interval | None) -> str:
  """Return the verdict of a comparison that was run."""
  if interval is not None and interval.low > 0:
    return SHOWN
  if interval is not None and interval.high < 0:
    return CONTRADICTED
  return NOT_SHOWN


def signed_numbers(
  terms: Sequence[Term], measured: Sequence[Measured]
) -> list[Number]:
  """Return the numbers of one seed with the signs of their terms."""
  return [
    one.number._replace(sign=term.sign)
    for term, one in zip(terms, measured, strict=True)
  ]


def printed_of(terms: Sequence[Term]) -> Printed | None:
  """Return the printed difference, as of methods with clients of their own."""
  if not all(term.is_printed for term in terms):
    return None
  published = [(term.sign, term.cell.published) for term in terms]
  errors = [published_error(one) for _, one in published]
  error = None if None in errors else math.hypot(*errors)
  return Printed(sum(sign * one.mean for sign, one in published), error)


def differing(verdict: Verdict) -> list[Beside]:
  """Return the cells that differ from print by over twice the error."""
  return [one for one in verdict.cells if one.comparison.agrees is False]


def _seeds_of(term: Term, source: Source) -> dict[int, Measured]:
  found = {
    seed: numbers.measure(term.cell, seed, source)
    for seed in numbers.seeds_of(source)
  }
  return {seed: one for seed, one in found.items() if one is not None}


def _beside(term: Term, source: Source) -> Beside:
  found = _seeds_of(term, source)
  ours = None
  if found:
    listed = [one.number for one in found.values()]
    ours = over_seeds(
      [one.mean for one in listed],
      [one.std for one in listed],
      listed[0].size,
      tuple(found),
    )
  comparison = compare(term.cell, ours)
  if not term.is_printed:  # that number is of another view
    comparison = comparison._replace(
      difference=None, tolerance=None, agrees=None
    )
  return Beside(term, comparison, tuple(found.values()))

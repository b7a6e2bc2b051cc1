"""What a folder of results says of a claim.

  shown         all of the 95 % interval is above 0
  contradicted  all of it is below 0
  not shown     it contains 0, or there is none
  half run      some of the cells have a number, not all with one seed
  not run       no cell has a number

A claim of several comparisons counts their verdicts. Nothing is written, and no
images are needed: a fingerprint of the data that a row of the summary has is
that of a cell if the key of the cell's training, with it, is that of the row.
"""

import collections
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fedjax_pfl.evaluation.differences import (
  Difference,
  Score,
  stated_difference,
)
from fedjax_pfl.reproduction import summary
from fedjax_pfl.reproduction.cells import Cell, Reading
from fedjax_pfl.reproduction.claims.entries import Claim, Comparison, Term
from fedjax_pfl.reproduction.compare import (
  Compared,
  Rows,
  compare,
  find,
  over_seeds,
  published_error,
  row_of,
  score_of,
  score_of_row,
)
from fedjax_pfl.reproduction.execute import diverged_of
from fedjax_pfl.reproduction.plan import Evaluation, evaluation_of
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.runs import run_dir

SHOWN, NOT_SHOWN, CONTRADICTED = 'shown', 'not shown', 'contradicted'
HALF_RUN, NOT_RUN = 'half run', 'not run'
VERDICTS = SHOWN, NOT_SHOWN, CONTRADICTED, HALF_RUN, NOT_RUN
OF_SIGN = {1: SHOWN, 0: NOT_SHOWN, -1: CONTRADICTED}
BEST = ':best'  # after the name of a family of views
BEST_VIEW = 'test_best_view'  # in result.json


class Source(NamedTuple):
  """What was run, by its keys."""

  results: Results
  rows: Rows  # of the summary, by key and view
  of_training: Mapping[str, summary.Row]  # any row of a training, by its key
  data: Mapping[int, Sequence[str]]  # fingerprints that a seed was run with

  @property
  def seeds(self) -> list[int]:
    """Return all seeds that were run, or begun."""
    return sorted(self.data)


class Measured(NamedTuple):
  """Our number of a cell with one seed, and where it is from."""

  score: Score
  row: summary.Row  # of summary.csv: command, commit, machine, seconds
  view: str  # that was read
  key: str  # of the training
  run: pathlib.Path | None  # None: only the row is left


class PrintedDifference(NamedTuple):
  """The printed difference, in points."""

  mean: float
  error: float | None  # standard error; None: not known


class Judged(NamedTuple):
  """A comparison with its verdict."""

  stated: Comparison
  verdict: str
  printed: PrintedDifference | None  # None: print has no number of a view
  difference: Difference | None = None  # None: not run
  measured: tuple[tuple[Measured, ...], ...] = ()  # by seed, then by term
  diverged: tuple[str, ...] = ()  # methods whose training diverged
  alone: tuple['Beside', ...] = ()  # of a half-run one: the cells that were run


class Beside(NamedTuple):
  """A cell of a claim, with our number beside the printed one."""

  term: Term
  compared: Compared  # without our number if it was not run
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


def read_source(
  folder: pathlib.Path, configs: summary.Configs, log: Callable[[str], None]
) -> Source:
  """Return what a folder of results holds; a damaged run is refused."""
  old = summary.read_csv(folder / summary.SUMMARY)
  results = Results(folder)
  rows = summary.all_rows(results, configs, old, log)
  data = {(int(row['seed']), row['data']) for row in rows}
  for path in results.paths.values():  # of runs that did not end, too
    stored = run_dir.load_config(path)
    seed = int(stored['config']['seed'])
    data.add((seed, stored['data'].partition('+')[0]))
  return Source(
    results,
    summary.by_identity(rows),
    {row['key'].partition('_')[0]: row for row in rows},
    {one: sorted(own for seed, own in data if seed == one) for one, _ in data},
  )


def judge_claim(claim: Claim, source: Source) -> Verdict:
  """Return a claim with the verdicts of its comparisons."""
  judged = tuple(judge(one, source) for one in claim.comparisons)
  terms = {
    (term.table, frozenset(term.where.split(',')), term.cell.reading): term
    for one in claim.comparisons
    for term in one.terms
  }
  cells = tuple(_beside(term, source) for term in terms.values())
  return Verdict(claim, judged, cells)


def judge(stated: Comparison, source: Source) -> Judged:
  """Return a comparison with its verdict, over the seeds that all cells have.

  A cell with more seeds is compared with those that the others have.
  """
  by_term = [_by_seed(term.cell, source) for term in stated.terms]
  shared = sorted(set.intersection(*map(set, by_term)))
  printed = printed_of(stated.terms)
  if not shared:
    beside = (_beside(term, source) for term in stated.terms)
    alone = tuple(one for one in beside if one.measured)
    lost = (one.name for one in stated.terms if _diverged(one.cell, source))
    return Judged(
      stated,
      HALF_RUN if alone else NOT_RUN,
      printed,
      diverged=tuple(dict.fromkeys(lost)),
      alone=alone,
    )
  measured = tuple(tuple(one[seed] for one in by_term) for seed in shared)
  signed = [signed_scores(stated.terms, one) for one in measured]
  difference = stated_difference(signed)
  verdict = OF_SIGN[difference.sign]
  return Judged(stated, verdict, printed, difference, measured)


def signed_scores(
  terms: Sequence[Term], measured: Sequence[Measured]
) -> list[Score]:
  """Return the numbers of one seed with the signs of their terms."""
  return [
    one.score._replace(sign=term.sign)
    for term, one in zip(terms, measured, strict=True)
  ]


def printed_of(terms: Sequence[Term]) -> PrintedDifference | None:
  """Return the printed difference, as of methods with clients of their own."""
  if not all(term.is_printed for term in terms):
    return None
  published = [(term.sign, term.cell.published) for term in terms]
  errors = [published_error(one) for _, one in published]
  error = None if None in errors else math.hypot(*errors)
  mean = sum(sign * one.mean for sign, one in published)
  return PrintedDifference(mean, error)


def differing(verdict: Verdict) -> list[Beside]:
  """Return the cells that differ from print by over twice the error."""
  return [one for one in verdict.cells if one.compared.agrees is False]


def _beside(term: Term, source: Source) -> Beside:
  found = _by_seed(term.cell, source)
  ours = over_seeds({seed: one.score for seed, one in found.items()})
  compared = compare(term.cell, ours)
  if not term.is_printed:  # that number is of another view
    compared = compared._replace(difference=None, tolerance=None, agrees=None)
  return Beside(term, compared, tuple(found.values()))


def _by_seed(cell: Cell, source: Source) -> dict[int, Measured]:
  found = {seed: measure(cell, seed, source) for seed in source.seeds}
  return {seed: one for seed, one in found.items() if one is not None}


def measure(cell: Cell, seed: int, source: Source) -> Measured | None:
  """Return our number of a cell; None if it was not run, or diverged."""
  for evaluation in _evaluations(cell, seed, source):
    key = evaluation.training.key
    if key in source.of_training:
      break
  else:
    return None
  run = source.results.paths.get(key)
  reading = _chosen(cell.reading, run)
  if reading is None:
    return None
  if found := find(source.results, evaluation, reading):
    score = score_of(found, reading)
  elif kept := row_of(evaluation, reading, source.rows):
    score = score_of_row(kept)
  else:
    return None
  row = source.of_training[key]
  score = score._replace(data=row['data'])
  return Measured(score, row, reading.view, key, run)


def _diverged(cell: Cell, source: Source) -> bool:
  """Return whether a training of a cell diverged."""
  return any(
    diverged_of(evaluation.training, source.results)
    for seed in source.seeds
    for evaluation in _evaluations(cell, seed, source)
  )


def _evaluations(cell: Cell, seed: int, source: Source) -> list[Evaluation]:
  """Return the evaluation of a cell, on all data that the seed was run with."""
  return [
    evaluation_of(cell, seed, lambda settings, data=data: data)
    for data in source.data[seed]
  ]


def _chosen(reading: Reading, run: pathlib.Path | None) -> Reading | None:
  """Return the reading; of a family of views, that of its best one."""
  family, is_best, _ = reading.view.partition(BEST)
  if not is_best:
    return reading
  if run is None:
    return None
  best = run_dir.load_result(run).get(BEST_VIEW, {}).get(family)
  return reading._replace(view=best['together']['view']) if best else None

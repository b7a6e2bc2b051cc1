"""The table of a sweep, as text."""

import math
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.compare.combinations import Combination
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.results.statistics.choice import (
  Trials,
  best_of,
  settings_tried,
)
from fedjax_pfl.results.tables.table import align

Groups = Sequence[Sequence[Run]]  # [setting][seed]; () where a seed diverged


def tried_on_validation(groups: Groups, measure: Measure = ACCURACY) -> Trials:
  """Return each setting as tried; refuse if in each of them a run diverged."""
  tried = settings_tried(groups, measure)
  if best_of(tried) is None:
    raise bad_input(
      'sweep',
      got=f'{len(groups)} settings, in each of which a run diverged',
      expected='a setting whose runs stay finite',
      cause='learning rates that are too high for this model',
    )
  return tried


def as_table(
  combinations: Sequence[Combination],
  groups: Groups,
  tried: Trials,
  measure: Measure = ACCURACY,
) -> str:
  """Return a measure of each setting, mean ± deviation over seeds, as text.

  If validation chooses among those `tried`: on its examples, and of the best
  alone on the tests. Else on the tests, which are no ground for a choice.
  """
  fields, best = [*combinations[0]], best_of(tried)
  rows = [(*fields, *['validation'] * bool(tried), 'tests')]
  pairs = zip(combinations, groups, strict=True)
  for number, (combination, runs) in enumerate(pairs):
    cells, view = [combination[name] for name in fields], ''
    if tried:
      trial = tried[number]
      view = trial.view if trial else ''
      cells.append(_mean_and_std(trial.means if trial else [], measure))
    is_shown = not tried or number == best
    rows.append((*cells, on_tests(runs, view, measure) if is_shown else ''))
  return align(rows)


def on_tests(
  runs: Sequence[Run], view: str, measure: Measure = ACCURACY
) -> str:
  """Return mean ± deviation over seeds on the tests, in this view.

  Without one in that which is the number of each run.
  """
  numbers = [run.result['views'][view or run.compared[1]] for run in runs]
  return _mean_and_std([x[measure.in_summary] for x in numbers], measure)


def _mean_and_std(values: Sequence[float], measure: Measure) -> str:
  if not values or None in values or math.isnan(np.mean(values)):
    return 'diverged'
  return measure.over_seeds(values)

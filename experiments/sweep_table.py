"""The table of a sweep, as text.

The best is chosen by `results/statistics/choice.py`, on examples that nobody
trained on.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.compare.combinations import Combination
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.results.statistics.choice import Choice, best_setting
from fedjax_pfl.results.tables.table import align

Groups = Sequence[Sequence[Run]]  # [setting][seed]; () where a seed diverged


def best_on_validation(groups: Groups, measure: Measure = ACCURACY) -> Choice:
  """Return the choice; refuse settings in each of which a run diverged."""
  choice = best_setting(groups, measure)
  if choice is None:
    raise bad_input(
      'sweep',
      got=f'{len(groups)} settings, in each of which a run diverged',
      expected='a setting whose runs stay finite',
      cause='learning rates that are too high for this model',
    )
  return choice


def as_table(
  combinations: Sequence[Combination],
  groups: Groups,
  choice: Choice | None,
  measure: Measure = ACCURACY,
) -> str:
  """Return a measure of each setting, mean ± deviation over seeds, as text.

  With a choice: on validation, and of the best setting alone on the tests.
  Without: on the tests, which are no ground for a choice.
  """
  fields = [*combinations[0]]
  rows = [(*fields, *['validation'] * bool(choice), 'tests')]
  pairs = zip(combinations, groups, strict=True)
  for number, (combination, runs) in enumerate(pairs):
    cells, view = [combination[name] for name in fields], ''
    if choice:
      tried = choice.tried[number]
      view = tried.view if tried else ''
      cells.append(_mean_and_std(tried.means if tried else [], measure))
    is_shown = not choice or number == choice.best
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

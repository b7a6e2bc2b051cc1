"""The settings of one method against one another: a sweep.

Of two fields a heat map, else rows of dots for each field.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.evaluation.measures import ACCURACY, Measure
from fedjax_pfl.results.charts import svg
from fedjax_pfl.results.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel, Section
from fedjax_pfl.results.page.styles import css_of
from fedjax_pfl.results.runs.groups import UNTRAINED, Group, without_digests
from fedjax_pfl.results.statistics.choice import (
  Tried,
  best_of,
  settings_tried,
  verdict,
)
from fedjax_pfl.settings import FIELDS

# Of other clients, or other examples, validation chooses nothing.
EXAMPLES = {name for name, field in FIELDS.items() if field.section == 'data'}
EXAMPLES -= {'preprocessing'}
LEAST = 3  # settings that are a sweep
WIDTH = 560  # in units of text that is 12 high
CELL = 44  # height of a row of the heat map
PALE, DARK = 0.06, 0.6  # opacity of the lowest and the highest cell
STEP = 10  # from a setting to the next with the same value
CHARACTER = 7  # width of one


class Sweep(NamedTuple):
  """The settings of one method, and what each has."""

  groups: Sequence[Group]
  values: Sequence[Mapping[str, Any]]  # of the fields in which they differ
  tried: Sequence[Tried | None]  # None: diverged, or fewer seeds than others
  best: int
  on_validation: bool  # else on the tests, which are no ground for a choice
  measure: Measure

  @property
  def css(self) -> str:
    return css_of(self.groups[0])


def find_sweep(
  groups: Sequence[Group], measure: Measure = ACCURACY
) -> Sweep | None:
  """Return the sweep; None unless one method has several settings.

  If none has a finite number with every seed, it is no sweep.
  """
  if len(groups) < LEAST or len({group.first.method for group in groups}) > 1:
    return None
  flats, shown = [group.settings for group in groups], {}
  for field in dict.fromkeys(itertools.chain(*flats)):
    values = [flat.get(field) for flat in flats]
    if field not in UNTRAINED and len({*map(repr, values)}) > 1:
      shown[field] = without_digests(values)
  if not shown:
    return None
  rows = zip(*shown.values(), strict=True)
  values = [dict(zip(shown, row, strict=True)) for row in rows]
  most = max(len(group.runs) for group in groups)
  whole = [group.runs if len(group.runs) == most else () for group in groups]
  runs = [run for group in groups for run in group.runs]
  has_examples = all(run.clients.validation is not None for run in runs)
  on_validation = has_examples and EXAMPLES.isdisjoint(shown)
  if on_validation:
    tried = settings_tried(whole, measure)
  else:
    pairs = zip(groups, whole, strict=True)
    tried = [_on_tests(group, measure) if x else None for group, x in pairs]
  best = best_of(tried)
  if best is None:
    return None
  return Sweep(groups, values, tried, best, on_validation, measure)


def _on_tests(group: Group, measure: Measure) -> Tried:
  numbers = group.numbers(group.after, measure.in_summary)
  return Tried('', dict(enumerate(numbers[:, None])), measure)


def make_section(sweep: Sweep) -> Section:
  where = 'validation examples' if sweep.on_validation else 'the tests'
  text = sweep.measure.label(f'{sweep.measure.head} on {where}')
  text += ', mean over clients and seeds.'
  if not sweep.on_validation:
    text += ' To choose a setting by it would be to choose by the tests.'
  if len({len(group.runs) for group in sweep.groups}) > 1:
    text += ' Settings with fewer seeds than others have no number.'
  return Section('Sweep', text, _overview(sweep))


def lead(sweep: Sweep) -> str:
  """Return which setting validation chooses, and what it has on the tests."""
  view, group = sweep.tried[sweep.best].view, sweep.groups[sweep.best]
  tests = group.mean(view or group.after, sweep.measure.in_summary)
  said = sweep.measure.said(tests)
  return f'{verdict(sweep.values, sweep.tried)} On the tests it has {said}.'


def _overview(sweep: Sweep) -> list[Panel]:
  """Return the heat map of two fields, or rows of dots for each field."""
  axes = {}  # values in order: numbers by size, others as met
  for field in sweep.values[0]:
    values = [setting[field] for setting in sweep.values]
    if all(type(value) in (int, float) for value in values):
      values.sort()
    axes[field] = list(dict.fromkeys(map(str, values)))
  settings = {repr(setting) for setting in sweep.values}
  if len(axes) == 2 and len(settings) == len(sweep.values):
    title = ' against '.join(reversed(axes))
    return [Panel(title, plot_heat_map(sweep, axes))]
  note = (
    'Dot: a setting. Line: from its lowest seed to its highest. Number: the '
    'best.'
  )
  return [
    Panel(field, plot_values(sweep, field, axis), note)
    for field, axis in axes.items()
  ]


# ---- charts


def plot_heat_map(sweep: Sweep, axes: Mapping[str, Sequence[str]]) -> Markup:
  """Draw a number for every (row, column), the darkest the highest.

  The best has a frame.
  """
  (name, rows), (across, columns) = axes.items()
  cells = {
    tuple(map(str, setting.values())): trial.mean
    for setting, trial in zip(sweep.values, sweep.tried, strict=True)
    if trial
  }
  best = tuple(map(str, sweep.values[sweep.best].values()))
  left = CHARACTER * max(map(len, [*rows, name])) + 16
  top, width = 40, (WIDTH - left) / len(columns)
  low, high = np.nanmin([*cells.values()]), np.nanmax([*cells.values()])
  shade = svg.Scale(low, high if high > low else low + 1, PALE, DARK)
  parts = [
    svg.text(left, 14, across, 'label'),
    svg.text(left - 8, top - 6, name, 'end', 'label'),
  ]
  for at, column in enumerate(columns):
    parts.append(svg.text(left + (at + 0.5) * width, top - 6, column, 'middle'))
  for number, row in enumerate(rows):
    y = top + number * CELL
    parts.append(svg.text(left - 8, y + CELL / 2 + 4, row, 'end', 'row'))
    for at, column in enumerate(columns):
      x, value = left + at * width, cells.get((row, column), np.nan)
      box = {'x': x + 1, 'y': y + 1, 'width': width - 2, 'height': CELL - 2}
      text = '–'
      if np.isfinite(value):
        text, opacity = sweep.measure.short(value), f'{float(shade(value)):.2f}'
        parts.append(svg.tag('rect', **box, class_='swatch', opacity=opacity))
      if (row, column) == best:
        parts.append(svg.tag('rect', **box, class_='frame'))
      right, down = x + width / 2, y + CELL / 2 + 4
      parts.append(svg.text(right, down, text, 'middle', 'strong'))
  height = top + len(rows) * CELL + 4
  label = f'{sweep.measure.head}, {name} against {across}'
  return svg.drawing(
    WIDTH, height, label, svg.tag('g', *parts, class_=sweep.css)
  )


def plot_values(sweep: Sweep, field: str, values: Sequence[str]) -> Markup:
  """Draw a row for each value of a field: its settings, one below another.

  Settings with a seed without a finite number have no dot.
  """
  pairs = zip(sweep.values, sweep.tried, strict=True)
  shown = [
    (x, trial) for x, trial in pairs if trial and np.isfinite(trial.mean)
  ]
  every = [mean for _, trial in shown for mean in trial.means]
  rows, most = [], 1
  for value in values:
    here = [trial for x, trial in shown if str(x[field]) == value]
    most = max(most, len(here))
    marks = [
      Mark(
        *(trial.mean, min(trial.means), max(trial.means)),
        shift=STEP * (at - (len(here) - 1) / 2),
      )
      for at, trial in enumerate(here)
    ]
    best = max(here, key=lambda trial: trial.merit, default=None)
    text = sweep.measure.short(best and best.mean)
    rows.append(Row(value, marks, (text,), sweep.css))
  height, axis = max(22, STEP * (most + 1)), svg.ticks(min(every), max(every))
  label = sweep.measure.label(f'{sweep.measure.head} against {field}')
  return plot_intervals(rows, label, height=height, axis=axis)

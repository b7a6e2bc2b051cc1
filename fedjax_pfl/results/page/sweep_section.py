"""The settings of one method against one another: a sweep.

Of two fields a heat map, else rows of dots for each field; then the curve of
every setting before those of the others.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.evaluation import measures
from fedjax_pfl.evaluation.measures import Measure
from fedjax_pfl.results.charts import svg
from fedjax_pfl.results.charts.lines import plot_before_others
from fedjax_pfl.results.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel, Section
from fedjax_pfl.results.page.sections import ending
from fedjax_pfl.results.page.styles import css_of
from fedjax_pfl.results.runs.groups import (
  UNTRAINED,
  Group,
  Views,
  without_digests,
)
from fedjax_pfl.results.runs.run import either
from fedjax_pfl.results.statistics.choice import best_view
from fedjax_pfl.runs.score_files import VALIDATION
from fedjax_pfl.settings import FIELDS

# Of other clients, or other examples, validation chooses nothing.
EXAMPLES = {name for name, field in FIELDS.items() if field.section == 'data'}
EXAMPLES -= {'preprocessing'}
LEAST = 3  # settings that are a sweep
MOST_CURVES = 24
WIDTH = 560  # in units of text that is 12 high
CELL = 44  # height of a row of the heat map
PALE, DARK = 0.06, 0.6  # opacity of the lowest and the highest cell
STEP = 10  # from a setting to the next with the same value
CHARACTER = 7  # width of one


class Setting(NamedTuple):
  """A group of the page as one setting of a sweep."""

  group: Group
  values: Mapping[str, Any]  # of the fields in which settings differ
  accuracy: np.ndarray  # [S] in percent, or another measure, by seed
  views: Views  # in which it has this

  @property
  def mean(self) -> float:
    return float(self.accuracy.mean())


class Sweep(NamedTuple):
  """The settings of one method, the best first, and what they differ in."""

  settings: tuple[Setting, ...]
  fields: tuple[str, ...]
  on_validation: bool  # or on the tests, which are no ground for a choice
  measure: Measure


def find_sweep(
  groups: Sequence[Group], measure: Measure = measures.ACCURACY
) -> Sweep | None:
  """Return the sweep; None unless one method has several settings.

  Settings without a finite accuracy, or with fewer seeds than others, come
  last; if all are, it is no sweep.
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
  runs = [run for group in groups for run in group.runs]
  on_validation = all(run.clients.validation is not None for run in runs)
  on_validation &= EXAMPLES.isdisjoint(shown)
  settings = []
  for number, group in enumerate(groups):
    named = {field: values[number] for field, values in shown.items()}
    numbers = _numbers(group, on_validation, measure)
    settings.append(Setting(group, named, *numbers))
  most = max(len(group.runs) for group in groups)

  def order(setting: Setting) -> tuple[bool, float]:
    is_known = len(setting.accuracy) == most and np.isfinite(setting.mean)
    merit = measure.sign * setting.mean
    return not is_known, -np.nan_to_num(merit, nan=-np.inf)

  settings.sort(key=order)
  if order(settings[0])[0]:
    return None
  return Sweep(tuple(settings), tuple(shown), on_validation, measure)


def make_sections(sweep: Sweep) -> list[Section]:
  where = 'validation examples' if sweep.on_validation else 'the tests'
  of = f'{sweep.measure.head} on {where}, {sweep.measure.unit}'
  text = f'{of.rstrip(", ")}, mean over clients and seeds.'
  if not sweep.on_validation:
    text += ' To choose a setting by it would be to choose by the tests.'
  if len({len(setting.accuracy) for setting in sweep.settings}) > 1:
    text += ' Settings with fewer seeds than others come after them.'
  return [Section('Sweep', text, _overview(sweep)), *_curves(sweep)]


def lead(sweep: Sweep) -> str:
  """Return which setting validation chooses, and what it has on the tests."""
  best, settings = sweep.settings[0], len(sweep.settings)
  measure = sweep.measure
  tests = best.group.mean(best.views, measure.in_summary)
  by = f' by {measure.name}' * (measure != measures.ACCURACY)
  return (
    f'Of {settings} settings, validation chooses {best.group.label}{by}: '
    f'{measure.said(best.mean)} there, {measure.said(tests)} on the tests.'
  )


def _numbers(
  group: Group, on_validation: bool, measure: Measure
) -> tuple[np.ndarray, Views]:
  """Return the measure of each seed [S], and the view that has it."""
  if not on_validation:
    return group.numbers(group.after, measure.in_summary), group.after
  tried = best_view(group.runs, measure)
  if tried is None:
    return np.full(len(group.runs), np.nan), group.after
  return np.array(tried.means), tried.view or group.after


def _overview(sweep: Sweep) -> list[Panel]:
  """Return the heat map of two fields, or rows of dots for each field."""
  settings, fields = sweep.settings, sweep.fields
  css = css_of(settings[0].group)
  axes = {}  # values in order: numbers by size, others as met
  for field in fields:
    values = [setting.values[field] for setting in settings]
    if all(type(value) in (int, float) for value in values):
      values.sort()
    axes[field] = list(dict.fromkeys(map(str, values)))
  means = {tuple(map(str, s.values.values())): s.mean for s in settings}
  if len(fields) == 2 and len(means) == len(settings):
    best = next(iter(means))
    parts = means, [*axes.values()], fields, css, best, sweep.measure
    chart = plot_heat_map(*parts)
    return [Panel(f'{fields[1]} against {fields[0]}', chart)]
  note = (
    'Dot: a setting. Line: from its lowest seed to its highest. Number: the '
    'best.'
  )
  return [
    Panel(field, plot_values(sweep, field, axis), note)
    for field, axis in axes.items()
  ]


def _curves(sweep: Sweep) -> list[Section]:
  """Return the curve of every setting, the best first, before the others."""
  settings, curves, names = [], [], []
  for setting in sweep.settings:
    metrics = _metrics(setting, sweep.on_validation)
    rounds, accuracy = setting.group.curve(metrics) if metrics else ((), ())
    if len(rounds):  # none if no number was finite
      settings.append(setting)
      curves.append((rounds, accuracy.mean(0)))
      names += metrics
  panels = []
  for number, setting in enumerate(settings[:MOST_CURVES]):
    pairs = setting.values.items()
    title = ', '.join(f'{name}={value}' for name, value in pairs)
    chart = plot_before_others(curves, number, css_of(setting.group))
    note = sweep.measure.text(setting.mean)
    panels.append(Panel(title, chart, note, is_small=True))
  text = (
    f'{either(names)} over rounds, mean over seeds; the best setting first, '
    'the others in grey. Number: that of the sweep.'
  )
  return [Section('Curve of every setting', text, panels)] * bool(panels)


def _metrics(setting: Setting, on_validation: bool) -> Sequence[str]:
  """Return the metric of each seed that is nearest to the sweep's number."""
  group, views = setting.group, setting.views
  views = [views] * len(group.runs) if isinstance(views, str) else views
  logged = itertools.chain(*group.first.metrics)
  after = ending(group)
  any_accuracy = [name for name in logged if name.endswith(after)][:1]
  wanted = [[f'{VALIDATION}{view}' for view in views]] * on_validation
  wanted.append([view + after for view in views])
  wanted.append(any_accuracy * len(views))
  for names in filter(None, wanted):
    pairs = zip(names, group.runs, strict=True)
    if all(name in run.logged() for name, run in pairs):
      return names
  return ()


# ---- charts


def plot_heat_map(
  cells: Mapping[tuple[str, str], float],
  axes: Sequence[Sequence[str]],
  names: Sequence[str],
  css: str,
  best: tuple[str, str],
  measure: Measure = measures.ACCURACY,
) -> Markup:
  """Draw a number for every (row, column), the darkest the highest.

  The `best` has a frame: the highest, unless that one has fewer seeds.
  """
  rows, columns = axes
  left = CHARACTER * max(map(len, [*rows, names[0]])) + 16
  top, width = 40, (WIDTH - left) / len(columns)
  low, high = np.nanmin([*cells.values()]), np.nanmax([*cells.values()])
  shade = svg.Scale(low, high if high > low else low + 1, PALE, DARK)
  parts = [
    svg.text(left, 14, names[1], 'label'),
    svg.text(left - 8, top - 6, names[0], 'end', 'label'),
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
        text, opacity = measure.short(value), f'{float(shade(value)):.2f}'
        parts.append(svg.tag('rect', **box, class_='swatch', opacity=opacity))
      if (row, column) == best:
        parts.append(svg.tag('rect', **box, class_='frame'))
      middle = x + width / 2, y + CELL / 2 + 4
      parts.append(svg.text(*middle, text, 'middle', 'strong'))
  height = top + len(rows) * CELL + 4
  label = f'{measure.head}, {names[0]} against {names[1]}'
  return svg.drawing(WIDTH, height, label, svg.tag('g', *parts, class_=css))


def plot_values(sweep: Sweep, field: str, axis: Sequence[str]) -> Markup:
  """Draw a row for each value of a field: its settings, one below another.

  Settings with a seed without a finite accuracy have no dot.
  """
  shown = [setting for setting in sweep.settings if np.isfinite(setting.mean)]
  every = np.concatenate([setting.accuracy for setting in shown])
  rows, most, sign = [], 1, sweep.measure.sign
  for value in axis:
    here = [setting for setting in shown if str(setting.values[field]) == value]
    most = max(most, len(here))
    marks = [
      Mark(
        *(setting.mean, setting.accuracy.min(), setting.accuracy.max()),
        shift=STEP * (at - (len(here) - 1) / 2),
      )
      for at, setting in enumerate(here)
    ]
    best = max((sign * setting.mean for setting in here), default=np.nan)
    css = css_of(sweep.settings[0].group)
    rows.append(Row(value, marks, (sweep.measure.short(sign * best),), css))
  form = {
    'height': max(22, STEP * (most + 1)),
    'axis': svg.ticks(every.min(), every.max()),
  }
  label = f'{sweep.measure.head} against {field}, {sweep.measure.unit}'
  return plot_intervals(rows, label.rstrip(', '), **form)

"""The settings of one method against one another: a sweep.

Of two fields a heat map, else a strip of dots for each field; then the curve
of every setting before those of the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.report.charts.lines import plot_before_others
from fedjax_pfl.report.charts.panels import Panel, Section
from fedjax_pfl.report.charts.svg import plain
from fedjax_pfl.report.charts.sweeps import plot_heat_map, plot_strip
from fedjax_pfl.report.finished_runs import either
from fedjax_pfl.report.page.groups import UNTRAINED, Group, without_digests
from fedjax_pfl.report.page.sections import ACCURACY

LEAST = 3  # settings that are a sweep
MOST_CURVES = 24


class Setting(NamedTuple):
  """A group of the page as one setting of a sweep."""

  group: Group
  values: Mapping[str, Any]  # of the fields in which settings differ
  accuracy: np.ndarray  # [S] in percent, by seed

  @property
  def mean(self) -> float:
    return float(self.accuracy.mean())


class Sweep(NamedTuple):
  """The settings of one method, the best first, and what they differ in."""

  settings: tuple[Setting, ...]
  fields: tuple[str, ...]
  on_validation: bool  # or on the tests, which are no ground for a choice


def find_sweep(groups: Sequence[Group]) -> Sweep | None:
  """Return the sweep; None unless one method has several settings.

  Settings without a finite accuracy, or with fewer seeds than others, come
  last; if all are, it is no sweep.
  """
  if len(groups) < LEAST or len({group.css for group in groups}) > 1:
    return None
  flats = [group.settings for group in groups]
  shown = {}
  for field in dict.fromkeys(field for flat in flats for field in flat):
    values = [flat.get(field) for flat in flats]
    if field not in UNTRAINED and len({*map(repr, values)}) > 1:
      shown[field] = without_digests(values)
  if not shown:
    return None
  runs = [run for group in groups for run in group.runs]
  on_validation = all(run.clients.validation is not None for run in runs)
  settings = []
  for place, group in enumerate(groups):
    own = {field: values[place] for field, values in shown.items()}
    settings.append(Setting(group, own, _accuracy(group, on_validation)))
  most = max(len(group.runs) for group in groups)

  def order(one: Setting) -> tuple[bool, float]:
    is_known = len(one.accuracy) == most and np.isfinite(one.mean)
    return not is_known, -np.nan_to_num(one.mean, nan=-np.inf)

  settings.sort(key=order)
  if order(settings[0])[0]:
    return None
  return Sweep(tuple(settings), tuple(shown), on_validation)


def make_sections(sweep: Sweep) -> list[Section]:
  """Return the sections of a sweep."""
  where = 'validation examples' if sweep.on_validation else 'the tests'
  words = f'Accuracy on {where}, %, mean over clients and seeds.'
  if not sweep.on_validation:
    words += ' To choose a setting by it would be to choose by the tests.'
  if len({len(one.accuracy) for one in sweep.settings}) > 1:
    words += ' Settings with fewer seeds than others come after them.'
  return [Section('Sweep', words, _overview(sweep)), *_curves(sweep)]


def lead(sweep: Sweep) -> str:
  """Return which setting validation chooses, and what it has on the tests."""
  best, settings = sweep.settings[0], len(sweep.settings)
  tests = best.group.mean(best.group.after, 'mean')
  return (
    f'Of {settings} settings, validation chooses {best.group.label}: '
    f'{best.mean:.1f}\u00a0% there, {tests:.1f}\u00a0% on the tests.'
  )


def _accuracy(group: Group, on_validation: bool) -> np.ndarray:
  """Return the accuracy of each seed [S], of the models that are its result."""
  if not on_validation:
    return group.numbers(group.after, 'mean')
  means = []
  for run in group.runs:
    found = accuracies(run.clients.validation, run.clients.train_count)
    means.append(np.nanmean(found) if np.isfinite(found).any() else np.nan)
  return np.array(means)


def _overview(sweep: Sweep) -> list[Panel]:
  """Return the heat map of two fields, or a strip of dots for each field."""
  settings, fields = sweep.settings, sweep.fields
  css = settings[0].group.css
  axes = {
    field: _axis([one.values[field] for one in settings]) for field in fields
  }
  means = {tuple(map(str, one.values.values())): one.mean for one in settings}
  if len(fields) == 2 and len(means) == len(settings):
    best = next(iter(means))
    svg = plot_heat_map(means, [*axes.values()], fields, css, best)
    return [Panel(f'{fields[1]} against {fields[0]}', svg)]
  note = 'Dot: a setting. Bar: from its lowest seed to its highest.'
  accuracy = [one.accuracy for one in settings]
  panels = []
  for field, axis in axes.items():
    values = [str(one.values[field]) for one in settings]
    svg = plot_strip(values, accuracy, axis, field, css)
    panels.append(Panel(field, svg, note))
  return panels


def _axis(values: Sequence[Any]) -> list[str]:
  """Return the values of a field in order: numbers by size, others as met."""
  if all(type(value) in (int, float) for value in values):
    values = sorted(values)
  return list(dict.fromkeys(map(str, values)))


def _curves(sweep: Sweep) -> list[Section]:
  """Return the curve of every setting, the best first, before the others."""
  settings, curves, names = [], [], []
  for one in sweep.settings:
    metrics = _metrics(one.group, sweep.on_validation)
    rounds, accuracy = one.group.curve(metrics) if metrics else ((), ())
    if len(rounds):  # none if no number was finite
      settings.append(one)
      curves.append((rounds, accuracy.mean(0)))
      names += metrics
  panels = []
  for place, one in enumerate(settings[:MOST_CURVES]):
    title = ', '.join(f'{name}={value}' for name, value in one.values.items())
    svg = plot_before_others(curves, place, one.group.css)
    panels.append(Panel(title, svg, plain(one.mean, 2), is_small=True))
  words = (
    f'{either(names)} over rounds, mean over seeds; the best setting first, '
    'the others in grey. Number: that of the sweep.'
  )
  return [Section('Curve of every setting', words, panels)] * bool(panels)


def _metrics(group: Group, on_validation: bool) -> Sequence[str]:
  """Return the metric of each seed that is nearest to the sweep's number."""
  logged = [name for line in group.first.metrics for name in line]
  any_accuracy = [name for name in logged if name.endswith(ACCURACY)][:1]
  wanted = [[f'validation/{view}' for view in group.after]] * on_validation
  wanted.append([view + ACCURACY for view in group.after])
  wanted.append(any_accuracy * len(group.after))
  for names in filter(None, wanted):
    pairs = zip(names, group.runs, strict=True)
    if all(name in run.logged() for name, run in pairs):
      return names
  return ()

"""The figure of the demo: means before and after personalisation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.charts import figure_file, picture
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page import tables
from fedjax_pfl.results.page.sections import (
  interval_of,
  levels_in_words,
  plot_levels,
)
from fedjax_pfl.results.page.styles import css_of, style_of
from fedjax_pfl.results.runs.groups import (
  Group,
  make_groups,
  notes_on_choice,
)
from fedjax_pfl.results.runs.run import dataset_in_words, read_comparable
from fedjax_pfl.results.statistics import standing

WIDTH = 800  # of the chart
HEADER = ('algorithm', 'before', 'after', 'low', 'high', 'worst_decile_after')


def save_overview(workdirs: Sequence[AnyPath], out: AnyPath) -> Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return it."""
  groups = sorted_groups(workdirs)
  rows = [
    (group.label, *map(figure_file.format_number, numbers(group)))
    for group in groups
  ]
  return figure_file.save(draw(groups), out, HEADER, rows)


def numbers(group: Group) -> tuple[float, ...]:
  """Return the means over seeds, and the interval of the second."""
  before = group.mean(group.before, 'mean')
  worst = group.mean(group.after, 'worst_decile')
  return before, *interval_of(group)[:3], worst


def as_table(workdirs: Sequence[AnyPath]) -> str:
  """Return the summary of the page as text, the highest method first."""
  groups = sorted_groups(workdirs)
  text = tables.summary(groups, [{}] * len(groups)).as_text()
  return f'{text}\n{standing.undecided(tables.rank(groups))}'.rstrip()


def sorted_groups(workdirs: Sequence[AnyPath]) -> list[Group]:
  """Return runs by method; those without a finite mean come last."""
  groups = make_groups(read_comparable(workdirs))
  sign = groups[0].first.measure.sign
  means = [-sign * group.mean(group.after, 'mean') for group in groups]
  return [groups[at] for at in np.argsort(means, kind='stable')]


def draw(groups: Sequence[Group]):
  """Return a Figure of a line a method, from before to after."""
  title = f'Personalisation on {dataset_in_words(groups[0].first.dataset)}'
  colours = {css_of(g): style_of(g.first.method).colour for g in groups}
  notes = [levels_in_words(groups), *notes_on_choice(groups)]
  panels = [Panel('', plot_levels(groups, WIDTH))]
  return picture.draw(title, panels, colours, notes=notes)

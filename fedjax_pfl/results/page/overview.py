"""A figure of all methods: mean accuracy before and after personalisation."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.charts import figure_file, picture
from fedjax_pfl.results.charts.rows import PERCENT, Mark, Row, plot_intervals
from fedjax_pfl.results.charts.svg import Panel, plain
from fedjax_pfl.results.page import tables
from fedjax_pfl.results.page.render import dataset_in_words
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.runs.groups import (
  Group,
  has_worst_tenth,
  make_groups,
)
from fedjax_pfl.results.runs.run import notes_on_choice, read_comparable
from fedjax_pfl.results.statistics import differences, standing

HEADER = ('algorithm', 'before', 'after', 'low', 'high', 'worst_decile_after')
SIZE = {'width': 800, 'margins': (112, 44), 'height': 27}  # of the chart, a row
NOTE = 'Hollow: before personalisation. Filled: after, mean over clients.'
CROSS = 'Cross: worst tenth of the clients.'
SEVERAL = (
  'Line: 95 % interval over three seeds or more (Student); of fewer, the way '
  'from before to after.'
)


class Numbers(NamedTuple):
  """Of the seeds of one method, in percent; NaN: there is none."""

  before: float
  after: float
  low: float  # of a 95 % interval over seeds; three seeds or more have one
  high: float
  worst: float  # tenth of the clients, after


def save_overview(workdirs: Sequence[AnyPath], out: AnyPath) -> Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return it."""
  groups, number = sorted_groups(workdirs), figure_file.format_number
  rows = [(one.label, *map(number, numbers(one))) for one in groups]
  return figure_file.save(draw(groups), out, HEADER, rows)


def as_table(workdirs: Sequence[AnyPath]) -> str:
  """Return the summary of the page as text, the highest method first."""
  groups = sorted_groups(workdirs)
  text = tables.summary(groups, [{}] * len(groups)).as_text()
  return f'{text}\n{standing.undecided(tables.rank(groups))}'.rstrip()


def sorted_groups(workdirs: Sequence[AnyPath]) -> list[Group]:
  """Return runs by method; those without a finite mean come last."""
  groups = make_groups(read_comparable(workdirs))
  means = [-numbers(group).after for group in groups]
  return [groups[place] for place in np.argsort(means, kind='stable')]


def numbers(group: Group) -> Numbers:
  """Return the means over seeds, and the interval of the second."""
  seeds, low, high = group.numbers(group.after, 'mean'), math.nan, math.nan
  if len(seeds) >= differences.MIN_SEEDS:
    found = differences.over_seeds(seeds)
    low, high = found.low, found.high
  before = group.mean(group.before, 'mean')
  worst = group.mean(group.after, 'worst_decile')
  return Numbers(before, float(np.mean(seeds)), low, high, worst)


def draw(groups: Sequence[Group]):
  """Return a Figure of a line a method, from before to after."""
  rows, colours = [], {}
  for at, group in enumerate(groups):
    one = numbers(group)
    before = Mark(one.before, kind='hollow')
    if math.isnan(one.low):  # the way from before to after
      before = before._replace(low=one.before, high=one.after)
    after = Mark(one.after, one.low, np.minimum(one.high, 100))
    marks = [before, after, Mark(one.worst, marker='X')]
    rows.append(Row(group.label, marks, (plain(one.after),), f'c{at}'))
    colours[f'c{at}'] = style_of(group.first.method).colour
  svg = plot_intervals(rows, 'test accuracy, %', **SIZE, axis=PERCENT)
  title = f'Personalisation on {dataset_in_words(groups[0].first.dataset)}'
  by_name = {paper_name(group.first.method): group.runs for group in groups}
  notes = [NOTE, *[CROSS] * has_worst_tenth(groups), *notes_on_choice(by_name)]
  if max(len(group.runs) for group in groups) >= differences.MIN_SEEDS:
    notes.insert(1, SEVERAL)
  return picture.draw(title, [Panel('', svg)], colours, notes=notes)

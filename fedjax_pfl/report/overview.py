"""A figure of all methods: mean accuracy before and after personalisation."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.charts.panels import Panel
from fedjax_pfl.report.charts.rows import PERCENT, Mark, Row, plot_intervals
from fedjax_pfl.report.charts.svg import plain
from fedjax_pfl.report.finished_runs import (
  FinishedRun,
  chosen_by_tests,
  first_and_after,
  note_on_choice,
  read_comparable,
)
from fedjax_pfl.report.page.render import dataset_in_words
from fedjax_pfl.report.styles import display_name, style_of

HEADER = ('algorithm', 'before', 'after', 'worst_decile_after')
WIDTH, MARGINS, HEIGHT = 800, (112, 44), 27  # of the chart and a row
NOTE = (
  'Hollow: before personalisation. Filled: after, mean over clients. '
  'Cross: worst tenth of the clients.'
)


class Gain(NamedTuple):
  """Accuracies of one run in percent, over clients."""

  algorithm: str
  before: float  # mean of the first view; NaN for a method with one view
  after: float  # mean after personalisation
  worst_decile: float  # the same
  note: str = ''  # where the tests have chosen the view after


def save_overview(
  workdirs: Sequence[str | os.PathLike], out: str | os.PathLike
) -> pathlib.Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return it."""
  runs = read_comparable(workdirs)
  # Methods without a finite mean come last.
  gains = sorted(
    map(read_gain, runs), key=lambda gain: (math.isnan(gain.after), -gain.after)
  )
  rows = [(one[0], *map(figure_file.format_number, one[1:4])) for one in gains]
  title = f'Personalisation on {dataset_in_words(runs[0].dataset)}'
  return figure_file.save(draw(title, gains), out, HEADER, rows)


def read_gain(run: FinishedRun) -> Gain:
  """Return the numbers of one run."""
  views, name = run.result['views'], run.method
  first, last = first_and_after(run.views, run.result)
  before, after, worst = (
    math.nan if value is None else value
    for value in (
      views[first]['mean'] if first else None,
      views[last]['mean'],
      views[last]['worst_decile'],
    )
  )
  chosen = chosen_by_tests(run.views, run.result)
  note = note_on_choice([chosen], display_name(name)) if chosen else ''
  return Gain(name, before, after, worst, note)


def draw(title: str, gains: Sequence[Gain]):
  """Return a Figure of a line a method, from before to after."""
  rows = []
  for at, gain in enumerate(gains):
    before, after, worst = gain[1:4]
    marks = [
      Mark(before, before, after, kind='hollow'),
      Mark(after, after, after),
      Mark(worst, worst, worst, marker='X'),
    ]
    name = display_name(gain.algorithm)
    rows.append(Row(name, marks, (plain(after),), f'c{at}'))
  size = {'width': WIDTH, 'margins': MARGINS, 'height': HEIGHT}
  svg = plot_intervals(rows, 'test accuracy, %', **size, axis=PERCENT)
  colours = {
    row.css: style_of(gain.algorithm).colour
    for row, gain in zip(rows, gains, strict=True)
  }
  notes = [NOTE, *filter(None, (gain.note for gain in gains))]
  return picture.draw(title, [Panel('', svg)], colours, notes=notes)

"""A figure of all methods: mean accuracy before and after personalisation."""

import math
import os
import pathlib
from collections.abc import Sequence

from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.charts.clients import PERCENT
from fedjax_pfl.report.charts.panels import Panel
from fedjax_pfl.report.charts.rows import Mark, Row, plot_intervals
from fedjax_pfl.report.charts.svg import plain
from fedjax_pfl.report.finished_runs import (
  FinishedRun,
  notes_on_choice,
  read_comparable,
)
from fedjax_pfl.report.page.render import dataset_in_words
from fedjax_pfl.report.styles import style_of

HEADER = ('algorithm', 'before', 'after', 'worst_decile_after')
SIZE = {'width': 800, 'margins': (112, 44), 'height': 27}  # of the chart, a row
NOTE = (
  'Hollow: before personalisation. Filled: after, mean over clients. '
  'Cross: worst tenth of the clients.'
)


def save_overview(
  workdirs: Sequence[str | os.PathLike], out: str | os.PathLike
) -> pathlib.Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return it."""
  runs = read_comparable(workdirs)
  # Methods without a finite mean come last.
  runs.sort(key=lambda run: (math.isnan(numbers(run)[1]), -numbers(run)[1]))
  rows = [
    (run.method, *map(figure_file.format_number, numbers(run))) for run in runs
  ]
  return figure_file.save(draw(runs), out, HEADER, rows)


def numbers(run: FinishedRun) -> tuple[float, float, float]:
  """Return the means before and after, and the worst tenth after; or NaN."""
  views = run.result['views']
  found = (
    views[run.before]['mean'] if run.before else None,
    views[run.after]['mean'],
    views[run.after]['worst_decile'],
  )
  return tuple(math.nan if value is None else value for value in found)


def draw(runs: Sequence[FinishedRun]):
  """Return a Figure of a line a method, from before to after."""
  rows, colours = [], {}
  for at, run in enumerate(runs):
    before, after, worst = numbers(run)
    marks = [
      Mark(before, before, after, kind='hollow'),
      Mark(after, after, after),
      Mark(worst, worst, worst, marker='X'),
    ]
    style = style_of(run.method)
    rows.append(Row(style.name, marks, (plain(after),), f'c{at}'))
    colours[f'c{at}'] = style.colour
  svg = plot_intervals(rows, 'test accuracy, %', **SIZE, axis=PERCENT)
  title = f'Personalisation on {dataset_in_words(runs[0].dataset)}'
  by_name = {style_of(run.method).name: [run] for run in runs}
  notes = [NOTE, *notes_on_choice(by_name)]
  return picture.draw(title, [Panel('', svg)], colours, notes=notes)

"""A figure that compares finished runs, with its numbers as a CSV."""

import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.finished_runs import (
  FinishedRun,
  labels_of,
  note_on_choice,
  read_comparable,
)
from fedjax_pfl.report.page import client_sections, curve_sections
from fedjax_pfl.report.page.groups import Group, views_in_words
from fedjax_pfl.report.page.render import dataset_in_words
from fedjax_pfl.report.styles import display_name, style_of

QUANTITIES = ('mean', 'std', 'worst_decile')  # of a summary, in the CSV
HEADER = ('run', 'quantity', 'view', 'at', 'percent')


def compare(
  workdirs: Sequence[str | os.PathLike], out: str | os.PathLike
) -> pathlib.Path:
  """Save `out` (.png, .pdf, .svg) and its CSV for finished runs; return `out`.

  The figure has charts of the page: mean accuracy of the first view over
  rounds, from the metrics named `<view>/accuracy`; every client before and
  after personalisation; mean and worst decile of both; the gain of every
  client. The CSV has every number, also the deviations over clients.
  """
  runs = read_comparable(workdirs)
  labels = labels_of([run.method for run in runs], [run.path for run in runs])
  for run in runs:
    _check_curve(run)
  rows = [
    row
    for label, run in zip(labels, runs, strict=True)
    for row in _csv_rows(label, run)
  ]
  return figure_file.save(draw(runs, labels), out, HEADER, rows)


def draw(runs: Sequence[FinishedRun], labels: Sequence[str]):
  """Return the matplotlib Figure: each run is a line of its own."""
  groups = []
  for at, (run, label) in enumerate(zip(runs, labels, strict=True)):
    style = style_of(label)
    groups.append(Group(style.name, style, f'c{at}', (run,)))
  over_rounds, *_ = curve_sections.learning(groups).panels
  panels = [over_rounds, *client_sections.spread(groups).panels]
  if gains := client_sections.gains(groups):
    panels += gains.panels
  notes = [f'The views compared: {views_in_words(groups)}.']
  notes += [
    note_on_choice(group.chosen_by_tests, display_name(group.first.method))
    for group in groups
    if group.chosen_by_tests
  ]
  colours = {group.css: group.style.colour for group in groups}
  return picture.draw(_title(runs), panels, colours, notes=notes)


def _title(runs: Sequence[FinishedRun]) -> str:
  words = []
  numbers = {len(run.clients.ids) for run in runs}
  rounds = {run.result['rounds'] for run in runs}
  for values, word in ((numbers, 'clients'), (rounds, 'rounds')):
    if len(values) == 1:
      words.append(f'{values.pop()} {word}')
  title = f'Personalisation on {dataset_in_words(runs[0].dataset)}'
  return f'{title}: {", ".join(words)}' if words else title


def _curve_name(run: FinishedRun) -> str:
  return f'{run.views[0]}/accuracy'


def _check_curve(run: FinishedRun) -> None:
  """Refuse a run that was not evaluated during its rounds."""
  if not len(run.curve(_curve_name(run))[0]):
    raise bad_input(
      'metrics',
      got=f'{run.path} without a value of {_curve_name(run)}',
      expected=f'lines of metrics that hold {_curve_name(run)}',
      choices=sorted(run.logged()),
      cause='a run that was not evaluated during its rounds',
    )


def _csv_rows(label: str, run: FinishedRun) -> Iterator[tuple[Any, ...]]:
  """Yield every number of a run."""
  views = list(run.clients.scores)
  for at, value in zip(*run.curve(_curve_name(run)), strict=True):
    yield label, 'round', run.views[0], f'{at:g}', f'{value:.4f}'
  for view in views:
    for client, value in zip(run.clients.ids, run.accuracy(view), strict=True):
      yield label, 'client', view, client, f'{value:.4f}'
  for view, summary in run.result['views'].items():
    for name in QUANTITIES:
      value = math.nan if summary[name] is None else summary[name]
      yield label, name, view, '', f'{value:.4f}'

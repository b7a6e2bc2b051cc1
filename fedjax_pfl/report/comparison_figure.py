"""A figure that compares finished runs, with its numbers as a CSV."""

import csv
import io
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.report import figure_file, finished_runs, plots
from fedjax_pfl.report.styles import display_name
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients

QUANTITIES = ('mean', 'std', 'worst_decile')  # of a summary, shown on the right


class ShownRun(NamedTuple):
  """The numbers of one run that the figure shows."""

  label: str  # see finished_runs.labels_of
  result: dict[str, Any]
  curve: plots.Curve
  clients: Clients


def compare(
  workdirs: Sequence[str | os.PathLike], out: str | os.PathLike
) -> pathlib.Path:
  """Save `out` (.png) and the CSV beside it for finished runs; return `out`.

  Left: mean accuracy of the first view over rounds, from the metrics named
  `<view>/accuracy`. Middle: every client before and after personalisation, as
  in `finished_runs.first_and_after`. Right: mean, std and worst decile of both.
  """
  out = pathlib.Path(out)
  paths = finished_runs.each_once(workdirs)
  results = [run_dir.load_result(path) for path in paths]
  methods = [result['algorithm'] for result in results]
  labels = finished_runs.labels_of(methods, paths)
  runs = list(map(_read, paths, labels, results))
  finished_runs.check_comparable(
    {
      str(path): finished_runs.dataset_of(path, result)
      for path, result in zip(paths, results, strict=True)
    }
  )
  stream = io.BytesIO()
  draw(runs).savefig(stream, format='png', dpi=160)
  return figure_file.write(out, stream.getvalue(), _csv(runs))


def draw(runs: Sequence[ShownRun]):
  """Return the matplotlib Figure; no window, no global state."""
  from matplotlib.figure import Figure  # 0.6 s

  figure = Figure(layout='constrained')
  figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
  curves, clients, summary = _axes(figure, len(runs))
  before, after = _names(runs)
  plots.plot_curves(curves, {run.label: run.curve for run in runs})
  curves.set_title(f'Accuracy over rounds, {before}', fontsize=11)
  plots.plot_clients(clients, {run.label: _change(run) for run in runs})
  clients.set_title('Accuracy of every client', fontsize=11)
  plots.plot_summary(summary, [(run.label, _summaries(run)) for run in runs])
  summary.set_title('Mean and spread over clients', fontsize=11)
  handles, _ = curves.get_legend_handles_labels()
  keys = plots.summary_keys(before, after)
  figure.legend(
    handles=handles + keys,
    loc='outside lower center',
    ncols=min(9, len(handles + keys)),
    frameon=False,
    handlelength=3,
    **plots.notes_as_title(list(map(_note, runs))),
  )
  figure.suptitle(_title(runs), fontsize=13)
  return figure


def _axes(figure, number: int):
  """Return three axes: in a row for a few runs, else the clients below."""
  clients = 1.0 + 1.6 * number  # inches
  if number <= 4:
    figure.set_size_inches(8.6 + clients, 4.4)
    return figure.subplots(1, 3, width_ratios=[4, clients, 3.6])
  figure.set_size_inches(max(10, clients), 9.5 + 0.2 * max(0, number - 8))
  names = [['curves', 'summary'], ['clients', 'clients']]
  axes = figure.subplot_mosaic(names, width_ratios=[5, 4])
  return axes['curves'], axes['clients'], axes['summary']


def _title(runs: Sequence[ShownRun]) -> str:
  parts = []
  numbers = {len(run.clients.ids) for run in runs}
  rounds = {run.result['rounds'] for run in runs}
  for values, word in ((numbers, 'clients'), (rounds, 'rounds')):
    if len(values) == 1:
      parts.append(f'{values.pop()} {word}')
  dataset = runs[0].result['dataset']
  return f'Personalisation on {dataset}: {", ".join(parts)}'.rstrip(': ')


def _names(runs: Sequence[ShownRun]) -> tuple[str, str]:
  """Return the views before and after, or words that hold for all methods."""
  pairs = {_views(run) for run in runs}
  before, after = pairs.pop()
  if pairs:
    return 'before personalisation', 'after personalisation'
  return before or after, after


def _views(run: ShownRun) -> tuple[str | None, str]:
  return finished_runs.first_and_after(list(run.clients.scores), run.result)


def _note(run: ShownRun) -> str:
  """Return the note on a view that the tests have chosen; else ''."""
  chosen = finished_runs.chosen_by_tests(list(run.clients.scores), run.result)
  if not chosen:
    return ''
  return finished_runs.note_on_choice([chosen], display_name(run.label))


def _summaries(run: ShownRun) -> dict[str, dict[str, float]]:
  views = run.result['views']
  return {view: views[view] for view in _views(run) if view}


def _read(path: pathlib.Path, label: str, result: dict[str, Any]) -> ShownRun:
  clients = run_dir.load_clients(path)
  name = f'{next(iter(clients.scores))}/accuracy'
  lines = run_dir.load_metrics(path)
  rounds, accuracy = finished_runs.curve(lines, name)
  if not len(rounds):
    raise bad_input(
      'metrics',
      got=f'{path} without a value of {name}',
      expected=f'lines of metrics that hold {name}',
      choices=sorted({key for line in lines for key in line}),
      cause='a run that was not evaluated during its rounds',
    )
  for summary in result['views'].values():
    for quantity in QUANTITIES:
      if summary[quantity] is None:
        summary[quantity] = math.nan
  return ShownRun(label, result, plots.Curve(rounds, accuracy), clients)


def _change(run: ShownRun) -> plots.Change:
  first, last = _views(run)
  before = _accuracies(run, first) if first else None
  return plots.Change(before, _accuracies(run, last), (first or last, last))


def _accuracies(run: ShownRun, view: str) -> np.ndarray:
  clients = run.clients
  return accuracies(clients.scores[view], clients.train_count)


def _csv(runs: Sequence[ShownRun]) -> str:
  """Return every number in the figure, one a line."""
  stream = io.StringIO()
  writer = csv.writer(stream, lineterminator='\n')
  writer.writerow(['run', 'quantity', 'view', 'at', 'percent'])
  for run in runs:
    views = run.clients.scores
    first = next(iter(views))
    for at, value in zip(*run.curve, strict=True):
      writer.writerow([run.label, 'round', first, f'{at:g}', f'{value:.4f}'])
    for view in views:
      for client, value in zip(
        run.clients.ids, _accuracies(run, view), strict=True
      ):
        writer.writerow([run.label, 'client', view, client, f'{value:.4f}'])
    for view, summary in run.result['views'].items():
      for name in QUANTITIES:
        writer.writerow([run.label, name, view, '', f'{summary[name]:.4f}'])
  return stream.getvalue()

"""Accuracy by epoch of several runs, from their metrics (FedBABU, Fig. 2-9)."""

import pathlib
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.analysis.open_run import Answer, Log, OpenRun, Options
from fedjax_pfl.analysis.similarity import head_row_cosine
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report.charts import panels, picture
from fedjax_pfl.report.charts.lines import Series
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import Style, distinct_styles, style_of
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model

NEEDS_DATA = False
HEADER = ('run', 'head_cosine', 'epoch', 'percent')


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Draw the metrics of the runs; the legend has the head's mean row cosine."""
  del options, log
  curves = {run.label: read_curve(run) for run in runs}
  cosines = {run.label: read_head_cosine(run.path) for run in runs}
  rows = [
    [label, format_number(cosines[label]), f'{epoch:g}', format_number(value)]
    for label, curve in curves.items()
    for epoch, value in zip(*curve, strict=True)
  ]
  styles = make_styles(runs, cosines)
  colours = {f'c{at}': style.colour for at, style in enumerate(styles.values())}
  lines = [
    Series(styles[label].name, css, styles[label], *curve)
    for css, (label, curve) in zip(colours, curves.items(), strict=True)
  ]
  shown = panels.curves(
    '', lines, 'epochs: rounds x local_epochs', 'test accuracy, %'
  )
  return Answer(picture.draw('', shown, colours), HEADER, rows)


def read_curve(run: OpenRun) -> tuple[np.ndarray, np.ndarray]:
  """Return epochs and the accuracy of the first view evaluated on the way.

  Epochs are rounds x local_epochs, as `total_epochs` counts them: without
  FedRep's epochs of the body.
  """
  lines = run_dir.load_metrics(run.path)
  name = f'{next(iter(run.settings.evaluation.eval_views), "initial")}/accuracy'
  points = [
    (line['round'] * run.settings.training.local_epochs, line[name])
    for line in lines
    if line.get(name) is not None  # null: it was not finite
  ]
  if not points:
    raise bad_input(
      'run',
      got=f'{run.path} without a value of {name}',
      expected='metrics that hold accuracies',
      choices=sorted({key for line in lines for key in line}),
      cause='a run that was not evaluated during its rounds',
    )
  epochs, accuracy = np.array(points, float).T
  return epochs, accuracy


def read_head_cosine(path: pathlib.Path) -> float:
  """Return the mean row cosine of the final head; NaN without a saved model."""
  model = path / 'model' / 'global.npz'
  return head_row_cosine(load_model(model)[0]) if model.is_file() else np.nan


def make_styles(
  runs: Sequence[OpenRun], cosines: dict[str, float]
) -> dict[str, Style]:
  """Return a style for each method, or for each run where methods repeat."""
  labels = [run.label for run in runs]
  methods = {run.settings.algorithm for run in runs}
  styles = {label: style_of(label) for label in labels}
  if len(methods) < len(runs):
    styles = {
      label: style._replace(name=styles[label].name)
      for label, style in distinct_styles(labels).items()
    }
  return {
    label: style
    if np.isnan(cosines[label])
    else style._replace(name=f'{style.name}, head cosine {cosines[label]:.4f}')
    for label, style in styles.items()
  }

"""Accuracy by epoch of several runs, from their metrics (Figures 2 to 9)."""

import pathlib

import numpy as np

from experiments.answers.common import (
  Answer,
  Log,
  Opened,
  Options,
  add_legend,
  make_figure,
)
from fedjax_pfl.analysis.similarity import head_row_cosine
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import plots
from fedjax_pfl.report.names import Look, look, variants
from fedjax_pfl.report.saving import number
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model

WITH_DATA = False
HEADER = ('run', 'head_cosine', 'epoch', 'percent')


def ask(runs: list[Opened], options: Options, log: Log) -> Answer:
  """Draw what the runs wrote down; the head's mean row cosine in the legend."""
  del options, log
  curves = {run.label: read_curve(run) for run in runs}
  cosines = {run.label: read_head_cosine(run.path) for run in runs}
  rows = [
    [label, number(cosines[label]), f'{epoch:g}', number(value)]
    for label, curve in curves.items()
    for epoch, value in zip(*curve, strict=True)
  ]
  figure, (ax,) = make_figure(1, 6.4, 4.6)
  plots.plot_curves(ax, curves, looks(runs, cosines).get)
  ax.set_xlabel('epochs')
  ax.set_ylabel('test accuracy [%]')
  add_legend(figure, ax)
  return Answer(figure, HEADER, rows)


def read_curve(run: Opened) -> plots.Curve:
  """Return the accuracy of the first view that was evaluated on the way."""
  lines = run_dir.load_metrics(run.path)
  name = f'{next(iter(run.settings["eval_views"]), "initial")}/accuracy'
  points = [
    (line['round'] * run.settings['local_epochs'], line[name])
    for line in lines
    if line.get(name) is not None  # null: it was not finite
  ]
  if not points:
    raise bad_input(
      'run',
      got=f'{run.path} without a value of {name}',
      expected='metrics that hold accuracies',
      choices=sorted({key for line in lines for key in line}),
      cause='a run that was never evaluated while it went on',
    )
  return plots.Curve(*np.array(points, float).T)


def read_head_cosine(path: pathlib.Path) -> float:
  """Return the mean row cosine of the final head; NaN where none is saved."""
  model = path / 'model' / 'global.npz'
  return head_row_cosine(load_model(model)[0]) if model.is_file() else np.nan


def looks(runs: list[Opened], cosines: dict[str, float]) -> dict[str, Look]:
  """Return the looks of methods; of runs, where they are of one method."""
  labels = [run.label for run in runs]
  methods = {run.settings['algorithm'] for run in runs}
  dealt = {label: look(label) for label in labels}
  if len(methods) < len(runs):
    dealt = {
      label: one._replace(name=dealt[label].name)
      for label, one in variants(labels).items()
    }
  return {
    label: one
    if np.isnan(cosines[label])
    else one._replace(name=f'{one.name}, head cosine {cosines[label]:.4f}')
    for label, one in dealt.items()
  }

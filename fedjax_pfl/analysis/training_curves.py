"""Accuracy by epoch of several runs, from their metrics (FedBABU, Fig. 2-9)."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.analysis.charts import chart
from fedjax_pfl.analysis.open_run import Answer, Log, OpenRun, Options
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Params
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import Style, distinct_styles, style_of
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model

HEADER = ('run', 'head_cosine', 'epoch', 'percent')
LABELS = 'epochs: rounds x local_epochs', 'test accuracy, %'


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Draw the metrics of the runs; the legend has the head's mean row cosine."""
  del options, log
  curves, cosines, rows = [], [], []
  for run in runs:
    model = run.path / 'model' / 'global.npz'
    has_model = model.is_file()
    cosines.append(
      head_row_cosine(load_model(model)[0]) if has_model else np.nan
    )
    curves.append(read_curve(run))
    head = run.label, format_number(cosines[-1])
    for epoch, value in zip(*curves[-1], strict=True):
      rows.append((*head, f'{epoch:g}', format_number(value)))
  styles = make_styles(runs, cosines)
  lines = [(style, *own) for style, own in zip(styles, curves, strict=True)]
  return Answer(*chart(lines, *LABELS), rows)


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


def make_styles(
  runs: Sequence[OpenRun], cosines: Sequence[float]
) -> list[Style]:
  """Return a style for each method, or for each run where methods repeat."""
  styles = [style_of(run.label) for run in runs]
  names = [style.name for style in styles]
  if len({run.settings.algorithm for run in runs}) < len(runs):
    styles = distinct_styles([run.label for run in runs]).values()
  words = ['' if np.isnan(c) else f', head cosine {c:.4f}' for c in cosines]
  return [
    style._replace(name=name + more)
    for style, name, more in zip(styles, names, words, strict=True)
  ]


def head_row_cosine(params: Params) -> float:
  """Return the mean cosine between the classes' weight vectors in the head.

  mean over i != j of cos(w_i, w_j) = (|sum_i u_i|^2 - Y) / (Y (Y - 1)),
                                       u_i = w_i / |w_i|

  The rows of the paper's head are the columns of this kernel [F, Y]. About 0
  where entries are random around 0, and m^2 / (m^2 + s^2) where they have mean
  m and deviation s: 0.9967 for U(0.45, 0.55), the paper's "similar" head. NaN
  for a single class, and where a row is zero.
  """
  rows = jnp.asarray(params['head']['kernel']).T
  number = len(rows)
  if number < 2:
    return float('nan')
  total = jnp.sum(rows / jnp.linalg.norm(rows, axis=-1, keepdims=True), 0)
  return float((jnp.sum(total**2) - number) / (number * (number - 1.0)))

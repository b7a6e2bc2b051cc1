"""How many clusters of clients suit a config: k-means of label distributions.

The sum of squared distances J(M) for M = 1, 2, ... clusters, and the number at
the sharpest bend of that curve.
"""

import os

import numpy as np

from fedjax_pfl.analysis.charts import chart
from fedjax_pfl.analysis.open_run import Log
from fedjax_pfl.client import clustering
from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.figure_file import check_output, format_number, save
from fedjax_pfl.report.styles import distinct_styles
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data

LABELS = 'clusters', 'sum of squared distances to the centre'


def draw_elbow(settings: Settings, output: str | os.PathLike, log: Log) -> int:
  """Save the figure and its CSV; return the number at the sharpest bend."""
  check_output(output)
  dataset, train, *_ = build_data(settings, log)
  counts = label_counts_of_clients(train, dataset.num_classes)
  found = clustering.elbow(label_shares(counts), settings.seed)
  rows = enumerate(map(format_number, found.inertias), 1)
  save(draw(found.inertias, found.best), output, ('clusters', 'inertia'), rows)
  return found.best


def draw(inertias: np.ndarray, best: int):
  """Return a figure of J(1), J(2), ... [M]; the sharpest bend is marked."""
  numbers, at = np.arange(1, len(inertias) + 1), [best - 1]
  bend = f'sharpest bend: {best} cluster{"s" * (best > 1)}'
  curve, point = distinct_styles(['all numbers', bend]).values()
  lines = [(curve, numbers, inertias), (point, numbers[at], inertias[at])]
  return picture.draw('', *chart('', lines, LABELS))

"""How many clusters of clients suit a config: k-means of label distributions.

The sum of squared distances J(M) for M = 1, 2, ... clusters, and the number at
the sharpest bend of that curve.
"""

import os
from collections.abc import Callable

import numpy as np

from fedjax_pfl.client import clustering
from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares
from fedjax_pfl.report.figure_file import check_output, format_number, save
from fedjax_pfl.report.plots import Axis, tidy
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data


def draw_elbow(
  settings: Settings,
  output: str | os.PathLike,
  log: Callable[[str], None],
) -> int:
  """Save the figure and its CSV; return the number at the sharpest bend."""
  from matplotlib.figure import Figure  # 0.6 s

  check_output(output)
  dataset, train, *_ = build_data(settings, log)
  counts = label_counts_of_clients(train, dataset.num_classes)
  found = clustering.elbow(label_shares(counts), settings.seed)
  figure = Figure((5, 3.5), layout='constrained')
  plot_elbow(figure.subplots(), *found)
  rows = enumerate(map(format_number, found.inertias), 1)
  save(figure, output, ('clusters', 'inertia'), rows)
  return found.best


def plot_elbow(ax: Axis, inertias: np.ndarray, best: int) -> Axis:
  """Draw J(1), J(2), ... [M] and mark the number at the sharpest bend."""
  numbers = np.arange(1, len(inertias) + 1)
  ax.plot(numbers, inertias, color='#0072b2', marker='o')
  ax.plot(
    best,
    inertias[best - 1],
    color='#d55e00',
    marker='o',
    markersize=12,
    fillstyle='none',
    linestyle='none',
    markeredgewidth=2,
    label=f'sharpest bend: {best} cluster{"s" * (best > 1)}',
  )
  ax.set_xlabel('clusters')
  ax.set_ylabel('sum of squared distances to the centre')
  ax.set_ylim(bottom=0)
  ax.xaxis.get_major_locator().set_params(integer=True)
  ax.legend(frameon=False)
  return tidy(ax)

"""How tight clusters become with their number, and where that bends."""

import numpy as np

from fedjax_pfl.report.plots import Axis, tidy


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

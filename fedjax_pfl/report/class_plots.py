"""Figures of accuracy on a client's own classes and on all others."""

from collections.abc import Mapping

import numpy as np

from fedjax_pfl.report.names import look
from fedjax_pfl.report.plots import Axis, Curve, tidy


def plot_saw_tooth(ax: Axis, curves: Mapping[str, Curve]) -> Axis:
  """Draw accuracy against local epochs; a line where a new round begins.

  An epoch that comes twice ends a round and begins the next one: the models
  as they were trained, and what they were averaged to. Curve.rounds are
  epochs here.
  """
  begins: set[float] = set()
  for algorithm, curve in curves.items():
    style = look(algorithm)
    starts = [0, *np.flatnonzero(np.diff(curve.rounds) == 0) + 1]
    begins |= {float(curve.rounds[start]) for start in starts}
    ax.plot(
      curve.rounds,
      curve.accuracy,
      color=style.colour,
      linestyle=style.dash,
      linewidth=1.6,
      marker=style.marker,
      markersize=5,
      markevery=starts,
      label=style.name,
    )
  for begin in sorted(begins):
    ax.axvline(begin, color='#DDDDDD', linewidth=0.8, zorder=0)
  ax.set_xlim(0, max(curve.rounds[-1] for curve in curves.values()))
  ax.set_ylim(bottom=0)
  ax.set_xlabel('local epochs   (marker: a round begins)')
  ax.set_ylabel('accuracy on the test set [%]')
  ax.xaxis.get_major_locator().set_params(integer=True)
  return tidy(ax)

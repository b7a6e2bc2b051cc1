"""Figures of accuracy on a client's own classes and on all others."""

from collections.abc import Mapping

from fedjax_pfl.report.names import look
from fedjax_pfl.report.plots import Axis, Curve, tidy


def plot_saw_tooth(
  ax: Axis, curves: Mapping[str, Curve], epochs_per_round: int
) -> Axis:
  """Draw accuracy against local epochs; a line where a new round begins.

  Two values at one epoch: the models at the end of a round, and the average
  of them that the next round begins with. (Curve.rounds are epochs here.)
  """
  for algorithm, curve in curves.items():
    style = look(algorithm)
    ax.plot(
      curve.rounds,
      curve.accuracy,
      color=style.colour,
      linestyle=style.dash,
      linewidth=1.6,
      marker=style.marker,
      markersize=4,
      # The moment right after each broadcast.
      markevery=epochs_per_round + 1,
      label=style.name,
    )
  last = max(curve.rounds[-1] for curve in curves.values())
  for start in range(0, int(last) + 1, epochs_per_round):
    ax.axvline(start, color='#DDDDDD', linewidth=0.8, zorder=0)
  ax.set_xlim(0, last)
  ax.set_ylim(bottom=0)
  ax.set_xlabel('local epochs, round after round')
  ax.set_ylabel('accuracy on the test set [%]')
  ax.xaxis.get_major_locator().set_params(integer=True)
  return tidy(ax)

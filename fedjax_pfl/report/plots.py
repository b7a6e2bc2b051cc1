"""Plots: every function takes an axis and arrays, and returns the axis.

No file, no global style. Accuracies are in percent. A method has the same
style in all of them (`styles.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.report.styles import Style, style_of

Axis = Any  # matplotlib.axes.Axes; importing it costs 0.6 s
GREY = '#555555'


class Curve(NamedTuple):
  """Accuracy of one view against rounds."""

  rounds: np.ndarray  # [T]
  accuracy: np.ndarray  # [T], or [S, T] for several seeds


class Change(NamedTuple):
  """Accuracy of every client before and after personalisation, in percent."""

  before: np.ndarray | None  # [K]; None for a method with one view
  after: np.ndarray  # [K]
  views: tuple[str, str] = ('before', 'after')


def plot_curves(
  ax: Axis,
  curves: Mapping[str, Curve],
  style_fn: Callable[[str], Style] = style_of,
) -> Axis:
  """Draw accuracy against rounds; a band from lowest to highest seed."""
  for algorithm, curve in curves.items():
    style = style_fn(algorithm)
    accuracy = np.atleast_2d(curve.accuracy)  # [S, T]
    seeds = f' ({len(accuracy)} seeds)' if len(accuracy) > 1 else ''
    ax.plot(
      curve.rounds,
      np.nanmean(accuracy, axis=0),
      color=style.colour,
      linestyle=style.dash,
      linewidth=2,
      marker=style.marker,
      markersize=5,
      markevery=max(1, len(curve.rounds) // 8),
      label=style.name + seeds,
    )
    if seeds:
      low, high = np.nanmin(accuracy, axis=0), np.nanmax(accuracy, axis=0)
      ax.fill_between(
        curve.rounds, low, high, color=style.colour, alpha=0.15, linewidth=0
      )
  ax.set_xlabel('communication rounds')
  ax.set_ylabel('test accuracy [%], mean over clients')
  ax.set_ylim(bottom=0)
  ax.set_xlim(left=0)
  ax.xaxis.get_major_locator().set_params(integer=True)
  return tidy(ax)


def plot_clients(ax: Axis, changes: Mapping[str, Change]) -> Axis:
  """Draw every client as a line from its accuracy before to that after.

  A box holds the middle half of the clients, the bar in it is the mean.
  """
  ticks: dict[float, str] = {}
  for number, (algorithm, change) in enumerate(changes.items()):
    style = style_of(algorithm)
    left, middle, right = 3.0 * number + np.array([0.0, 0.75, 1.5])
    ticks[middle] = f'\n{style.name}'
    if change.before is None:
      ticks[middle] = change.views[1] + ticks[middle]
      _cloud(ax, middle, change.after, style, side=1)
      continue
    ax.plot(
      [left + 0.2, right - 0.2],
      np.stack([change.before, change.after]),  # [2, K]
      color=style.colour,
      # A hundred lines stay distinguishable.
      alpha=float(np.clip(10 / len(change.after), 0.15, 0.5)),
      linewidth=1,
      zorder=1,
    )
    _cloud(ax, left, change.before, style, side=-1)
    _cloud(ax, right, change.after, style, side=1)
    ticks[left], ticks[right] = change.views
  ax.set_xticks(list(ticks), list(ticks.values()))
  ax.set_xlim(-0.8, 3.0 * len(changes) - 0.7)
  ax.set_ylim(-2, 102)
  ax.set_ylabel('test accuracy of a client [%]')
  ax.set_xlabel('dot: a client   box: the middle half   bar: the mean')
  tidy(ax)
  ax.tick_params(axis='x', length=0)
  return ax


def _cloud(ax: Axis, x: float, values: np.ndarray, style: Style, side: int):
  """Draw one dot per client beside a box of the middle half and the mean."""
  values = np.sort(values[~np.isnan(values)])
  if not values.size:
    return
  # Equal accuracies are common with few test images: spread, not stacked.
  spread = 0.2 + 0.3 * (np.arange(values.size) * 0.618 % 1)
  ax.scatter(
    x + side * spread,
    values,
    s=14,
    color=style.colour,
    alpha=0.6,
    linewidths=0,
    zorder=2,
  )
  ends = [x - 0.12, x + 0.12]
  low, high = np.percentile(values, [25, 75])
  ax.fill_between(
    ends, low, high, fc='white', ec=style.colour, linewidth=1.5, zorder=3
  )
  ax.hlines(values.mean(), *ends, color=style.colour, linewidth=3, zorder=4)


def plot_summary(
  ax: Axis, results: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]]
) -> Axis:
  """Draw (algorithm, views of result.json) as mean ± std; x: worst decile.

  The marker of a method's first view is hollow, of its last one filled.
  """
  for row, (algorithm, views) in enumerate(results):
    style = style_of(algorithm)
    shown = list(views.values())
    shown = shown if len(shown) == 1 else [shown[0], shown[-1]]
    for part, summary in enumerate(shown):
      is_last = part == len(shown) - 1
      y = row + (0.16 if is_last else -0.16) * (len(shown) > 1)
      ax.errorbar(
        summary['mean'],
        y,
        xerr=summary['std'],
        color=style.colour,
        marker=style.marker,
        markersize=8,
        markerfacecolor=style.colour if is_last else 'white',
        markeredgewidth=1.5,
        capsize=3,
        linewidth=1.5,
      )
      ax.plot(
        summary['worst_decile'], y, marker='x', color=style.colour, markersize=6
      )
  names = [style_of(name).name for name, _ in results]
  ax.set_yticks(range(len(results)), names)
  ax.set_ylim(len(results) - 0.5, -0.5)  # the first on top, as in the table
  ax.set_xlim(0, 102)  # room for half a marker
  ax.set_xlabel('test accuracy [%], mean ± std over clients')
  tidy(ax)
  ax.grid(axis='y', visible=False)
  ax.grid(axis='x', color='#DDDDDD', linewidth=0.8)
  return ax


def summary_keys(before: str, after: str) -> list[Any]:
  """Return legend handles that explain the marks of `plot_summary`."""
  from matplotlib.lines import Line2D  # 0.6 s

  return [
    Line2D([], [], color=GREY, ls='', marker=marker, mfc=face, label=label)
    for marker, face, label in (
      ('o', 'white', before),
      ('o', GREY, after),
      ('x', GREY, 'worst tenth of the clients'),
    )
  ]


def notes_as_title(notes: Sequence[str]) -> dict[str, Any]:
  """Return the options of a legend below a figure that show notes; '' none."""
  lines = '\n'.join(filter(None, notes))
  return {'title': lines, 'title_fontsize': 9} if lines else {}


def tidy(ax: Axis) -> Axis:
  """Draw two sides of the frame and a light horizontal grid."""
  ax.spines[['top', 'right']].set_visible(False)
  ax.spines[['left', 'bottom']].set_color(GREY)
  ax.tick_params(colors=GREY, labelcolor='black')
  ax.grid(axis='y', color='#DDDDDD', linewidth=0.8)
  ax.set_axisbelow(True)
  return ax

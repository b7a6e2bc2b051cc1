"""Plots of differences between methods, in points of accuracy.

As those of `plots.py`: an axis and arrays, no file, no global style.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.report.plots import GREY, Axis, tidy
from fedjax_pfl.report.styles import Style

BLUE = '#0072B2'
NORMAL = 1.96
MOST_DOTS = 2000  # of more clients, an even sample is drawn


class Published(NamedTuple):
  """A published difference, and its standard error."""

  difference: float
  error: float | None


class Row(NamedTuple):
  """A comparison of two methods; a row without both numbers is a heading."""

  label: str
  words: str = ''  # at the right: the verdict
  ours: float | None = None
  interval: tuple[float, float] | None = None
  published: Published | None = None

  @property
  def is_heading(self) -> bool:
    return not self.words


class Differences(NamedTuple):
  """The difference of every client, and what it is on average."""

  values: np.ndarray  # [K], of all seeds
  mean: float
  interval: tuple[float, float]  # of the mean


def plot_forest(ax: Axis, rows: Sequence[Row]) -> Axis:
  """Draw ours (filled, with its interval) above the published one (hollow)."""
  ax.axvline(0, color=GREY, linewidth=1)
  for y, row in enumerate(rows):
    if row.is_heading:
      ax.annotate(
        row.label,
        (0, y + 0.1),
        xycoords=('axes fraction', 'data'),
        va='center',
        fontsize=9,
        fontweight='bold',
        # Otherwise the line at 0 runs through the words.
        bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 1.5},
      )
      continue
    if row.published is not None:
      _mark(ax, y + 0.17, row.published.difference, _half(row), is_ours=False)
    if row.ours is not None:
      low, high = row.interval or (row.ours, row.ours)
      ends = (row.ours - low, high - row.ours)
      _mark(ax, y - 0.17, row.ours, ends, is_ours=True)
    ax.annotate(
      row.words,
      (1.01, y),
      xycoords=('axes fraction', 'data'),
      va='center',
      fontsize=9,
      color='black' if row.ours is not None else GREY,
    )
  labels = ['' if row.is_heading else row.label for row in rows]
  ax.set_yticks(range(len(rows)), labels, fontsize=9)
  ax.set_ylim(len(rows) - 0.4, -0.6)  # the first on top
  ax.set_xlabel('difference in accuracy, points; a claim says it is above 0')
  tidy(ax)
  ax.tick_params(axis='y', length=0)
  ax.grid(axis='y', visible=False)
  ax.grid(axis='x', color='#DDDDDD', linewidth=0.8)
  return ax


def plot_differences(
  ax: Axis, rows: Mapping[str, tuple[Style, Differences]]
) -> Axis:
  """Draw every client's difference as a dot, with the mean and its interval.

  The words at the right count the clients on either side of 0.
  """
  ax.axvline(0, color=GREY, linewidth=1)
  for y, (style, one) in enumerate(rows.values()):
    values = np.sort(one.values)
    shown = values
    if values.size > MOST_DOTS:
      places = np.linspace(0, values.size - 1, MOST_DOTS).astype(int)
      shown = values[places]
    # Equal differences are common with few test images: spread, not stacked.
    spread = 0.12 + 0.3 * (np.arange(shown.size) * 0.618 % 1)
    ax.scatter(
      shown, y + spread, s=16, color=style.colour, alpha=0.6, linewidths=0
    )
    low, high = one.interval
    ends = (one.mean - low, high - one.mean)
    _mark(ax, y - 0.1, one.mean, ends, is_ours=True, colour=style.colour)
    above, below = int((values > 0).sum()), int((values < 0).sum())
    ax.annotate(
      f'{one.mean:+.1f}  ({low:.1f} to {high:.1f})\n'
      f'{above:,} clients above 0, {below:,} below',
      (1.01, y + 0.1),
      xycoords=('axes fraction', 'data'),
      va='center',
      fontsize=9,
    )
  ax.set_yticks(np.arange(len(rows)) + 0.1, list(rows))
  ax.set_ylim(len(rows) - 0.4, -0.4)  # the first on top
  ax.set_xlabel('difference of a client, points of its test accuracy')
  tidy(ax)
  ax.tick_params(axis='y', length=0)
  ax.grid(axis='y', visible=False)
  ax.grid(axis='x', color='#DDDDDD', linewidth=0.8)
  return ax


def forest_keys():
  """Return legend handles that explain the marks of `plot_forest`."""
  from matplotlib.lines import Line2D  # 0.6 s

  return [
    Line2D([], [], color=BLUE, marker='o', ms=6, label='ours, 95 % interval'),
    Line2D(
      *([], []),
      color=GREY,
      marker='D',
      ms=5,
      mfc='white',
      lw=1,
      label='print, 95 % interval from its deviations',
    ),
  ]


def _half(row: Row) -> tuple[float, float]:
  half = NORMAL * (row.published.error or 0.0)
  assert math.isfinite(half), row
  return half, half


def _mark(
  ax: Axis,
  y: float,
  value: float,
  ends: tuple[float, float],
  *,
  is_ours: bool,
  colour: str = BLUE,
) -> None:
  ax.errorbar(
    value,
    y,
    xerr=np.reshape(ends, (2, 1)),
    color=colour if is_ours else GREY,
    marker='o' if is_ours else 'D',
    markersize=6 if is_ours else 4.5,
    markerfacecolor=colour if is_ours else 'white',
    linewidth=2 if is_ours else 1,
    capsize=3 if is_ours else 0,
    zorder=3 if is_ours else 2,
  )

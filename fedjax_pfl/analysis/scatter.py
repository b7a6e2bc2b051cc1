"""A scatter plot of points in classes, with names among the points."""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report.plots import Axis
from fedjax_pfl.report.styles import distinct_styles

MAX_NAMES = 12  # that fit among the points
COLUMNS, ROWS = 6, 14  # of cells that hold a name each


def plot_points(
  ax: Axis, points: np.ndarray, group: np.ndarray, names: Sequence[str]
) -> Axis:
  """Draw points [P, 2] in the colour and marker of their group [P].

  Up to 12 groups are also named in the figure, which can then be read without
  colour. Coordinates of t-SNE mean nothing, so the axis has no ticks.
  """
  from matplotlib import patheffects  # 0.6 s

  shown = np.unique(group)
  styles = distinct_styles([names[number] for number in shown])
  for number, style in zip(shown, styles.values(), strict=True):
    own = points[group == number]
    ax.scatter(
      *own.T,
      s=float(np.clip(40000 / len(points), 4, 24)),
      color=style.colour,
      marker=style.marker,
      alpha=0.6,
      linewidths=0,
      label=style.name,
    )
  if len(shown) <= MAX_NAMES:
    for number, place in name_places(points, group).items():
      ax.annotate(
        names[number],
        place,
        ha='center',
        va='center',
        fontsize=9,
        fontweight='bold',
        path_effects=[patheffects.withStroke(linewidth=3, foreground='white')],
      )
  ax.set_xticks([])
  ax.set_yticks([])
  ax.set_aspect('equal', 'datalim')
  ax.spines[:].set_color('#DDDDDD')
  return ax


def name_places(points: np.ndarray, group: np.ndarray) -> dict[int, np.ndarray]:
  """Return {group: where its name is written}, the middle of a grid cell.

  The cell in which the group has many points, and a large share of all points;
  each cell holds one name at most.
  """
  low, high = points.min(0), points.max(0)
  size = np.maximum(high - low, 1e-9) / [COLUMNS, ROWS]
  cell = np.minimum((points - low) // size, [COLUMNS - 1, ROWS - 1]).astype(int)
  cell = cell[:, 0] * ROWS + cell[:, 1]  # [P]
  total = np.bincount(cell, minlength=COLUMNS * ROWS)
  taken = np.zeros(len(total), bool)
  places = {}
  for number in np.unique(group):
    own = np.bincount(cell[group == number], minlength=COLUMNS * ROWS)
    best = int(np.argmax(np.where(taken, -1, own**2 / np.maximum(total, 1))))
    taken[best] = True
    places[int(number)] = low + size * (np.array(divmod(best, ROWS)) + 0.5)
  return places

"""A figure of a partition: examples by client and class, with its CSV.

One row for each partition, training on the left, testing on the right.
"""

import csv
import io
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report import figure_file
from fedjax_pfl.report.plots import GREY, Axis

FEW = 20  # clients or classes: each gets a bubble
BLUE = '#0072B2'
EMPTY = '#D55E00'


class Part(NamedTuple):
  """A partition of one image set."""

  label: str
  train: np.ndarray  # [K, Y] examples
  test: np.ndarray  # [K, Y]


def plot_class_counts(ax: Axis, counts: np.ndarray) -> Axis:
  """Draw examples [K, Y] by client and class; white is none.

  Up to 20 clients: bubbles, whose areas are the counts. More: a map, whose
  colours are. A triangle below the axis marks a client without examples.
  """
  num_clients, num_classes = counts.shape
  words = ['client']
  if max(counts.shape) <= FEW:
    _bubbles(ax, counts)
    words.append(f'area: examples, {counts.max():,} in the largest')
  else:
    _map(ax, counts)
  ax.set_xlim(-0.5, num_clients - 0.5)
  ax.set_ylim(-0.5, num_classes - 0.5)
  empty = np.flatnonzero(counts.sum(1) == 0)
  if len(empty):  # a line without points upsets the layout
    ax.plot(
      empty,
      np.zeros(len(empty)),
      transform=ax.get_xaxis_transform(),
      linestyle='',
      marker='^',
      markersize=5,
      color=EMPTY,
      clip_on=False,
      zorder=3,
    )
    words.append('triangle: no example')
  ax.set_xlabel('   '.join(words))
  ax.set_ylabel('class')
  for axis, length in ((ax.xaxis, num_clients), (ax.yaxis, num_classes)):
    if length <= FEW:
      axis.set_ticks(range(0, length, 1 if length <= 10 else 2))
  ax.spines[:].set_color(GREY)
  ax.tick_params(colors=GREY, labelcolor='black')
  return ax


def describe_sizes(counts: np.ndarray) -> str:
  """Return 'a to b examples a client', and how many clients have none."""
  sizes = counts.sum(1)
  text = f'{sizes.min():,}'
  if sizes.min() < sizes.max():
    text += f' to {sizes.max():,}'
  none = int((sizes == 0).sum())
  return f'{text} examples a client' + (
    f' ({none:,} have none)' if none else ''
  )


def draw(parts: Sequence[Part]):
  """Return the matplotlib Figure; no window, no global state."""
  from matplotlib.figure import Figure  # 0.6 s
  from matplotlib.ticker import MaxNLocator

  num_classes = max(part.train.shape[1] for part in parts)
  height = 0.9 + float(np.clip(0.27 * num_classes, 2.2, 4.0))
  figure = Figure(figsize=(12, height * len(parts)), layout='constrained')
  figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
  rows = figure.subplots(len(parts), 2, squeeze=False)
  for axes, part in zip(rows, parts, strict=True):
    for ax, counts, split in zip(
      axes, part[1:], ('training', 'testing'), strict=True
    ):
      plot_class_counts(ax, counts)
      ax.set_title(
        f'{part.label}, {split}: {describe_sizes(counts)}', fontsize=10
      )
      if ax.images:
        bar = figure.colorbar(ax.images[0], ax=ax, pad=0.01, aspect=30)
        bar.locator = MaxNLocator(5, integer=True)
        bar.set_label('examples of the class')
        bar.outline.set_visible(False)
  return figure


def check_output(out: str | os.PathLike) -> pathlib.Path:
  """Return the path; refuse another format."""
  out = pathlib.Path(out)
  if out.suffix != '.png':
    raise bad_input(
      'output',
      got=str(out),
      expected='a name that ends in .png',
      choices=[out.with_suffix('.png')],
      cause='a folder, or another format',
    )
  return out


def save(parts: Sequence[Part], out: str | os.PathLike) -> pathlib.Path:
  """Save `out` (.png) and the CSV beside it; return `out`."""
  out = check_output(out)
  stream = io.BytesIO()
  draw(parts).savefig(stream, format='png', dpi=160)
  return figure_file.write(out, stream.getvalue(), _csv(parts))


def _bubbles(ax: Axis, counts: np.ndarray) -> None:
  client, label = np.nonzero(counts)
  number = counts[client, label]
  # Points squared: the largest bubbles almost touch.
  largest = 290 * (10 / max(10, *counts.shape)) ** 2
  area = largest * number / max(number, default=1)
  # A single example remains visible.
  ax.scatter(client, label, s=np.maximum(area, 3), color=BLUE, linewidths=0)


def _map(ax: Axis, counts: np.ndarray) -> None:
  from matplotlib import colormaps, colors  # 0.6 s

  # One example must not look like none, and most counts are far below the
  # largest: no white in the map, and the root of the count.
  blues = colors.ListedColormap(colormaps['Blues'](np.linspace(0.15, 1, 256)))
  ax.imshow(
    np.ma.masked_equal(counts.T, 0),
    cmap=blues,
    norm=colors.PowerNorm(0.5, vmin=0),
    aspect='auto',
    origin='lower',
  )


def _csv(parts: Sequence[Part]) -> str:
  """Return every number in the figure, one a line; zeros are left out."""
  stream = io.StringIO()
  writer = csv.writer(stream, lineterminator='\n')
  writer.writerow(['partition', 'split', 'client', 'class', 'examples'])
  for part in parts:
    for split, counts in (('training', part.train), ('testing', part.test)):
      for client, label in zip(*np.nonzero(counts), strict=True):
        row = (client, label, counts[client, label])
        writer.writerow([part.label, split, *row])
  return stream.getvalue()

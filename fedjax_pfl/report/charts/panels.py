"""A chart with its words: what the page shows as a figure, and files do."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedjax_pfl.report.charts import partition as partitions
from fedjax_pfl.report.charts.lines import Series, line_sample, plot_lines
from fedjax_pfl.report.charts.svg import plain


class Key(NamedTuple):
  """A line of a legend, with the last of its numbers."""

  sample: Markup
  label: str
  value: str


class Panel(NamedTuple):
  title: str
  svg: Markup
  note: str = ''
  keys: tuple[Key, ...] = ()
  is_wide: bool = False
  is_small: bool = False  # one of many, drawn in a third of the page
  css: str = ''  # of the method shown


class Section(NamedTuple):
  title: str
  text: str
  panels: Sequence[Panel]


def curves(
  title: str,
  series: Sequence[Series],
  x_label: str,
  y_label: str,
  begins: Sequence[float] = (),
) -> list[Panel]:
  """Return a panel of the lines that have numbers; none without any."""
  series = [line for line in series if np.isfinite(line.y).any()]
  if not series:
    return []
  keys = tuple(
    Key(line_sample(one), one.label, plain(one.y[-1], one.digits))
    for one in series
  )
  return [Panel(title, plot_lines(series, x_label, y_label, begins), keys=keys)]


def partition(title: str, counts: np.ndarray, ids: Sequence[Any]) -> Panel:
  """Return the panel of examples [K, Y] by client and class."""
  shown = partitions.shown_clients(len(counts))
  sizes = partitions.describe_sizes(counts)
  note = f'{sizes}. Largest dot: {counts.max():,}.'
  if len(shown) < len(counts):
    note += f' Drawn: {len(shown)} of {len(counts):,} clients, evenly spaced.'
  svg = partitions.plot_partition(counts, ids, max(int(counts.max()), 1))
  return Panel(title, svg, note, is_wide=partitions.is_wide(counts))

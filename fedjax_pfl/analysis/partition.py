"""Figures of a config's data, with their CSV; nothing is trained.

Of a partition: examples by client and class, a row for each partition, training
on the left, testing on the right. And how many clusters of clients suit it: the
sum of squared distances J(M) for M = 1, 2, ... clusters of label distributions,
and the number at the sharpest bend of that curve.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.analysis.charts import chart
from fedjax_pfl.analysis.open_run import Log
from fedjax_pfl.client import clustering
from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares
from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import partition, picture
from fedjax_pfl.report.styles import distinct_styles
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data

HEADER = ('partition', 'split', 'client', 'class', 'examples')
ELBOW = 'clusters', 'sum of squared distances to the centre'
NOTE = (
  'Class against client: the area of a dot is the number of examples. '
  'Triangle: a client without examples.'
)


class Part(NamedTuple):
  """A partition of one image set: examples [K, Y]."""

  label: str
  training: np.ndarray
  testing: np.ndarray


def partition_counts(settings: Settings, label: str, log: Log) -> Part:
  """Return the label counts of the clients; the data are those of a run."""
  dataset, train, test, *_ = build_data(settings, log)
  counts = (
    label_counts_of_clients(data, dataset.num_classes) for data in (train, test)
  )
  return Part(label, *counts)


def label_of(settings: Settings, changes: Mapping[str, Any]) -> str:
  """Return 'dirichlet, dirichlet_beta=0.5' for a config with these changes."""
  words = [f'{field}={value}' for field, value in changes.items()]
  if not {'partition', settings.data.partition} & {*changes}:
    words.insert(0, settings.data.partition)
  return ', '.join(words)


def check_output(out: str | os.PathLike) -> pathlib.Path:
  """Return the path; refuse another format."""
  return figure_file.check_output(out, ['.png'])


def save(parts: Sequence[Part], out: str | os.PathLike) -> pathlib.Path:
  """Save `out` (.png) and, beside it, every count but zeros; return `out`."""
  panels, rows = [], []
  for label, *splits in parts:
    for split, counts in zip(Part._fields[1:], splits, strict=True):
      ids = range(len(counts))
      panels.append(partition.partition(f'{label}, {split}', counts, ids))
      for client, kind in zip(*np.nonzero(counts), strict=True):
        rows.append((label, split, client, kind, counts[client, kind]))
  figure = picture.draw('', panels, {}, columns=2, notes=[NOTE])
  return figure_file.save(figure, check_output(out), HEADER, rows)


def draw_elbow(settings: Settings, output: str | os.PathLike, log: Log) -> int:
  """Save the figure and its CSV; return the number at the sharpest bend."""
  figure_file.check_output(output)
  dataset, train, *_ = build_data(settings, log)
  counts = label_counts_of_clients(train, dataset.num_classes)
  found = clustering.elbow(label_shares(counts), settings.seed)
  numbers = map(figure_file.format_number, found.inertias)
  figure = _bent_curve(found.inertias, found.best)
  header = 'clusters', 'inertia'
  figure_file.save(figure, output, header, enumerate(numbers, 1))
  return found.best


def _bent_curve(inertias: np.ndarray, best: int):
  """Return a figure of J(1), J(2), ... [M]; the sharpest bend is marked."""
  numbers, at = np.arange(1, len(inertias) + 1), [best - 1]
  bend = f'sharpest bend: {best} cluster{"s" * (best > 1)}'
  curve, point = distinct_styles(['all numbers', bend]).values()
  lines = [(curve, numbers, inertias), (point, numbers[at], inertias[at])]
  return picture.draw('', *chart('', lines, ELBOW))

"""The figure of partitions, with its CSV; nothing is trained.

Examples by client and class, a row for each partition, training on the left,
testing on the right.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.analysis.open_run import Log
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import partition, picture
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data

HEADER = ('partition', 'split', 'client', 'class', 'examples')
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

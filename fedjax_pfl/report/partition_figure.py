"""A figure of a partition: examples by client and class, with its CSV.

One row for each partition, training on the left, testing on the right.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.report import figure_file
from fedjax_pfl.report.charts import partition, picture

HEADER = ('partition', 'split', 'client', 'class', 'examples')
NOTE = (
  'Class against client: the area of a dot is the number of examples. '
  'Triangle: a client without examples.'
)


class Part(NamedTuple):
  """A partition of one image set."""

  label: str
  train: np.ndarray  # [K, Y] examples
  test: np.ndarray  # [K, Y]

  @property
  def splits(self) -> tuple[tuple[str, np.ndarray], ...]:
    return ('training', self.train), ('testing', self.test)


def check_output(out: str | os.PathLike) -> pathlib.Path:
  """Return the path; refuse another format."""
  return figure_file.check_output(out, ['.png'])


def save(parts: Sequence[Part], out: str | os.PathLike) -> pathlib.Path:
  """Save `out` (.png) and, beside it, every count but zeros; return `out`."""
  rows = [
    (part.label, split, client, label, counts[client, label])
    for part in parts
    for split, counts in part.splits
    for client, label in zip(*np.nonzero(counts), strict=True)
  ]
  return figure_file.save(draw(parts), check_output(out), HEADER, rows)


def draw(parts: Sequence[Part]):
  """Return the matplotlib Figure; no window, no global state."""
  shown = [
    partition.partition(f'{part.label}, {split}', counts, range(len(counts)))
    for part in parts
    for split, counts in part.splits
  ]
  return picture.draw('', shown, {}, columns=2, notes=[NOTE])

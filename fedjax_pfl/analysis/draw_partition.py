"""The figure of a partition, with its CSV; nothing is trained.

Examples by client and class, training on the left, testing on the right.
"""

from pathlib import Path

import numpy as np

from fedjax_pfl.analysis.open_run import Log
from fedjax_pfl.core.example_losses import check_classes
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.results.charts import figure_file, partition, picture
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build_data import build_data

HEADER = ('split', 'client', 'class', 'examples')
NOTE = f'{partition.AREA} Triangle: a client without examples.'


def save(settings: Settings, out: AnyPath, log: Log) -> Path:
  """Save `out` and, beside it, every count but zeros; return `out`."""
  check_classes(settings.data.loss, 'the figure has the examples of each')
  out = figure_file.check_output(out)
  data, panels, rows = build_data(settings, log), [], []
  number = data.dataset.num_classes
  classes = data.dataset.class_names or range(number)
  for split, clients in (('training', data.train), ('testing', data.test)):
    counts = label_counts_of_clients(clients, number)  # [K, Y]
    names = data.names[: len(counts)] or range(len(counts))
    title = f'{without_digest(settings.data.partition)}, {split}'
    panels.append(partition.partition(title, counts, names, classes))
    for client, kind in zip(*np.nonzero(counts), strict=True):
      held = counts[client, kind]
      rows.append((split, names[client], classes[kind], held))
  figure = picture.draw('', panels, {}, notes=[NOTE])
  return figure_file.save(figure, out, HEADER, rows)

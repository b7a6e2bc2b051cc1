"""Draw how a config divides its images among clients; nothing is trained:

  python experiments/draw_partition.py --config=configs/digits.py:fedbabu \\
      --config.partition=dirichlet --output=runs/dirichlet.png

One row of the picture for each value of a field (as in the FedBABU paper's
Figures 10, 11 and 14): --vary=dirichlet_beta=1.0,0.5 or
--vary=shards_per_client=10,2. The numbers go to a CSV file beside the picture.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import flags, logging

from experiments import commandline

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/digits.py:fedbabu[,quick]'
)
OUTPUT = flags.DEFINE_string('output', None, 'the picture, a .png file')
VARY = flags.DEFINE_string(
  'vary', '', 'a field and its values, a row each: dirichlet_beta=1.0,0.5'
)


def main(overrides):
  logging.set_verbosity(logging.WARNING)
  rows = commandline.variants('--vary', VARY.value)
  settings = [
    commandline.read_settings(CONFIG.value, {**overrides, **row})
    for row in rows
  ]
  # Imported here: a mistyped flag should not wait for jax.
  from fedjax_pfl.core import progress
  from fedjax_pfl.report import partition_figure
  from fedjax_pfl.settings.validate import check_settings

  for one in settings:
    check_settings(one)
  partition_figure.check_name(OUTPUT.value)
  parts = [
    make_part(one, row, progress.log)
    for one, row in zip(settings, rows, strict=True)
  ]
  progress.log(f'Figure: {partition_figure.save(parts, OUTPUT.value)}')


def make_part(settings, row, log):
  """Return the class counts of a config, named by the fields of its row."""
  words = [f'{field}={value}' for field, value in row.items()]
  if not {'partition', settings['partition']} & {*row}:
    words.insert(0, settings['partition'])
  return count_classes(settings, ', '.join(words), log)


def count_classes(settings, label, log):
  """Return the class counts of a config, whose data are those of a run."""
  from fedjax_pfl.data.label_counts import label_counts_of_clients
  from fedjax_pfl.report.partition_figure import Part
  from fedjax_pfl.training.experiment import build_data

  dataset, train, test, _ = build_data(settings, log)
  counts = (
    label_counts_of_clients(data, dataset.num_classes) for data in (train, test)
  )
  return Part(label, *counts)


if __name__ == '__main__':
  commandline.run(main, required=['config', 'output'])

"""Draw how a config divides its images among clients; nothing is trained:

  python experiments/draw_partition.py --config=configs/digits.py:fedbabu \\
      --config.partition=dirichlet --output=runs/dirichlet.png

The figure has one row for each value of a field (as in the FedBABU paper's
Figures 10, 11 and 14): --vary=dirichlet_beta=1.0,0.5 or
--vary=shards_per_client=10,2. The numbers go to a CSV file beside it.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/digits.py:fedbabu[,quick]'
)
OUTPUT = flags.DEFINE_string('output', None, 'the figure, a .png file')
VARY = flags.DEFINE_string(
  'vary', '', 'a field and its values, a row each: dirichlet_beta=1.0,0.5'
)


def main(overrides):
  rows = commandline.variants('--vary', VARY.value)
  configs = [
    commandline.read_settings(CONFIG.value, {**overrides, **changes})
    for changes in rows
  ]
  from fedjax_pfl.analysis import partition
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings import parse_config

  settings = [parse_config(config) for config in configs]
  partition.check_output(OUTPUT.value)
  parts = [
    partition.partition_counts(
      one, partition.label_of(one, changes), progress.log
    )
    for one, changes in zip(settings, rows, strict=True)
  ]
  progress.log(f'Figure: {partition.save(parts, OUTPUT.value)}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'output'])

"""Draw how a config divides its images among clients; nothing is trained:

  fedjax-pfl draw-partition --config=digits:fedbabu \\
      --config.partition=dirichlet --out=runs/dirichlet.png

As in the FedBABU paper's Figures 10, 11 and 14. The numbers go to a CSV file
beside it.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
OUT = flags.DEFINE_string('out', None, 'the figure: .png, .pdf or .svg')


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.analysis import draw_partition
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings import parse_config

  path = draw_partition.save(parse_config(config), OUT.value, progress.log)
  progress.log(f'Figure: {path}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'out'], packages=['matplotlib'])

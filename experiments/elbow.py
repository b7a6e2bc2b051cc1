"""Draw how many clusters of clients suit a config; nothing is trained:

  python experiments/elbow.py --config=configs/digits.py:fedconcat \\
      --output=runs/elbow.png

K-means of the label distributions for 1, 2, ... clusters, and the number at
the sharpest bend of its inertia, for --config.hp.clusters. The numbers go to a
CSV file beside the figure.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/digits.py:fedconcat[,quick]'
)
OUTPUT = flags.DEFINE_string('output', None, 'the figure: .png, .pdf or .svg')


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.analysis.partition import draw_elbow
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings import parse_config

  best = draw_elbow(parse_config(config), OUTPUT.value, progress.log)
  progress.log(f'Sharpest bend: {best} clusters')
  progress.log(f'Figure: {OUTPUT.value}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'output'])

"""Draw how many clusters of clients suit a config; nothing is trained:

  python experiments/elbow.py --config=configs/digits.py:fedconcat \\
      --output=runs/elbow.png

K-means of the label distributions for 1, 2, ... clusters, and the number at
the sharpest bend of its inertia, for --config.hp.clusters. The numbers go to a
CSV file beside the picture.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import flags, logging

from experiments import commandline

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/digits.py:fedconcat[,quick]'
)
OUTPUT = flags.DEFINE_string('output', None, 'the picture, a .png file')


def main(overrides):
  logging.set_verbosity(logging.WARNING)
  settings = commandline.read_settings(CONFIG.value, overrides)
  # Imported here: a mistyped flag should not wait for jax.
  from matplotlib.figure import Figure

  from fedjax_pfl.client import clustering
  from fedjax_pfl.core import progress
  from fedjax_pfl.data.label_counts import label_counts_of_clients, label_shares
  from fedjax_pfl.report import elbow_plot, saving
  from fedjax_pfl.settings.validate import check_settings
  from fedjax_pfl.training.experiment import build_data

  check_settings(settings)
  saving.check_output(OUTPUT.value)
  dataset, train, _, _ = build_data(settings, progress.log)
  counts = label_counts_of_clients(train, dataset.num_classes)
  found = clustering.elbow(label_shares(counts), settings['seed'])
  figure = Figure((5, 3.5), layout='constrained')
  elbow_plot.plot_elbow(figure.subplots(), *found)
  rows = enumerate(map(saving.number, found.inertias), 1)
  saving.save(figure, OUTPUT.value, ('clusters', 'inertia'), rows)
  progress.log(f'Sharpest bend: {found.best} clusters')
  progress.log(f'Figure: {OUTPUT.value}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'output'])

"""Draw how a config divides its images among clients; nothing is trained:

  fedjax-pfl draw-partition --config=digits:fedbabu \\
      --config.partition=dirichlet --out=runs/dirichlet.png

As in the FedBABU paper's Figures 10, 11 and 14: examples by client and class,
training on the left, testing on the right. The numbers go to a CSV file beside
it, all but zeros.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
OUT = flags.DEFINE_string('out', None, 'the figure: .png, .pdf or .svg')
HEADER = ('split', 'client', 'class', 'examples')


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  import numpy as np

  from fedjax_pfl.core import progress
  from fedjax_pfl.core.example_losses import check_classes
  from fedjax_pfl.core.user_code import without_digest
  from fedjax_pfl.data.client_data import label_counts_of_clients
  from fedjax_pfl.results.charts import figure_file, partition, picture
  from fedjax_pfl.settings import parse_config
  from fedjax_pfl.training.build_data import build_data

  settings = parse_config(config)
  check_classes(settings.data.loss, 'the figure has the examples of each')
  out = figure_file.check_output(OUT.value)
  data, panels, rows = build_data(settings, progress.log), [], []
  number = data.dataset.num_classes
  classes = data.dataset.class_names or range(number)
  for split, clients in (('training', data.train), ('testing', data.test)):
    counts = label_counts_of_clients(clients, number)  # [K, Y]
    names = data.names[: len(counts)] or range(len(counts))
    title = f'{without_digest(settings.data.partition)}, {split}'
    panels.append(partition.partition(title, counts, names, classes))
    for client, label in zip(*np.nonzero(counts), strict=True):
      held = counts[client, label]
      rows.append((split, names[client], classes[label], held))
  note = f'{partition.AREA} Triangle: a client without examples.'
  figure = picture.draw('', panels, {}, notes=[note])
  progress.log(f'Figure: {figure_file.save(figure, out, HEADER, rows)}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'out'], packages=['matplotlib'])

"""Answer a question about finished runs with a figure and a CSV:

  python experiments/analyse.py --what=id_ood --run=runs/a --run=runs/b \\
      --output=runs/id_ood.pdf

  id_ood    accuracy on a client's own classes and on others (Table 20)
  features  t-SNE of the test images' features (Figures 15 and 16)

A field of the runs' configs can be replaced: --config.data_dir=/data. Run
directories are read, never written.
"""

import commandline
from absl import flags

WHAT = flags.DEFINE_string('what', None, 'the question, by its name above')
RUN = flags.DEFINE_multi_string('run', [], 'a run directory')
OUTPUT = flags.DEFINE_string('output', None, 'the figure: .png, .pdf or .svg')
CLIENTS = flags.DEFINE_integer(
  'clients', 0, 'id_ood: first clients; 0 = all', lower_bound=0
)
IMAGES = flags.DEFINE_integer(
  'images', 0, 'features: test images, evenly spaced; 0 = all', lower_bound=0
)
CLASSES = flags.DEFINE_list(
  'classes', [], 'features: names or numbers of classes; all if not given'
)


def main(overrides):
  from fedjax_pfl.analysis.analyse import Options, analyse
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import startup

  startup.cache_programs(progress.log)
  options = Options(
    clients=CLIENTS.value,
    images=IMAGES.value,
    classes=tuple(CLASSES.value),
  )
  path = analyse(
    WHAT.value,
    RUN.value,
    OUTPUT.value,
    options,
    progress.log,
    commandline.make_edit(overrides),
  )
  progress.log(f'Figure: {path}   numbers: {path.with_suffix(".csv")}')


if __name__ == '__main__':
  commandline.run(main, required=['what', 'run', 'output'])

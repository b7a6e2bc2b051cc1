"""Write how a config divides its examples among clients, for other programs:

  python experiments/export_partition.py --config=configs/digits.py:fedbabu \\
      --format=pfllib --out=DIR/Digits

--format=pfllib is a folder as PFLlib and HtFLlib read it: train/0.npz ..,
test/0.npz .., config.json. --format=indices is one JSON of the rows of every
client in the order of the data set. Nothing is trained.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
FORMAT = flags.DEFINE_string('format', 'indices', 'indices or pfllib')
OUT = flags.DEFINE_string('out', None, 'a new file, or a new folder')


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.core import progress
  from fedjax_pfl.data import partition_files
  from fedjax_pfl.settings import parse_config
  from fedjax_pfl.training.build_data import divide, load_images

  settings = parse_config(config)
  data, quick = settings.data, settings.system.quick
  dataset = load_images(data, quick, progress.log)
  division = divide(data, settings.seed, dataset)
  how = dataset, division, data.test_partition
  path = partition_files.write(FORMAT.value, OUT.value, *how)
  progress.log(f'{len(division["train"])} clients of {dataset.name}: {path}')


if __name__ == '__main__':
  commandline.run(main, required=['config', 'out'])

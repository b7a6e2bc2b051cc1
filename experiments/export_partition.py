"""Write how a config divides its examples among clients, for other programs:

  fedjax-pfl export-partition --config=digits:fedbabu \\
      --format=pfllib --out=DIR/Digits

--format=pfllib is a folder as PFLlib and HtFLlib read it: train/0.npz ..,
test/0.npz .., config.json. --format=indices is one JSON of the rows of every
client in the order of the data set. Nothing is trained.

  fedjax-pfl export-partition --form=demo --out=DIR

This makes a folder of a frozen form of the leaderboard: images, rows with each
seed, budget, and the entry to be filled in (docs/leaderboard.md).
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
FORMAT = flags.DEFINE_string('format', 'indices', 'indices or pfllib')
FORM = flags.DEFINE_string('form', None, 'a frozen form instead of a config')
PARTITION = flags.DEFINE_string('partition', None, 'of the form; its first')
OUT = flags.DEFINE_string('out', None, 'a new file, or a new folder')


def main(overrides):
  if FORM.value:
    commandline.refuse_beside_form(overrides, (CONFIG,))
    export_form()
    return
  commandline.refuse_without_form(PARTITION)
  commandline.require('config')
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.core import progress
  from fedjax_pfl.data import partition_files
  from fedjax_pfl.data.dealing import divide, load_images
  from fedjax_pfl.settings import parse_config

  settings = parse_config(config)
  data, out = settings.data, OUT.value
  dataset = load_images(data, settings.system.quick, progress.log)
  division = divide(data, settings.seed, dataset)
  tests = data.test_partition
  path = partition_files.write(FORMAT.value, out, dataset, division, tests)
  progress.log(f'{len(division["train"])} clients of {dataset.name}: {path}')


def export_form():
  from configs.leaderboard import load_form
  from experiments.entries import entries, form_data
  from fedjax_pfl.core import progress

  form = load_form(FORM.value)
  data = form_data.load(form, PARTITION.value or next(iter(form.partitions)))
  form_data.export(data, entries.blank(data), OUT.value)
  content = 'images, rows, budget, and an entry to fill in'
  progress.log(f'{form.name}, {data.partition}: {content}: {OUT.value}')


if __name__ == '__main__':
  commandline.run(main, required=['out'])

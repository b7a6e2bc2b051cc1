"""Run one experiment:

  python experiments/main.py --config=configs/fedbabu_digits.py \\
      --workdir=runs/a

Any field of the config can be given: --config.shards=5. The same command
continues a run that was stopped, and does nothing for one that is finished.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import app, flags, logging
from ml_collections import config_flags

from fedjax_pfl import console
from fedjax_pfl.errors import BadInput

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'The config file, e.g. configs/fedbabu_digits.py[:quick].'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'The directory of the run.')


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)  # orbax tells every step it takes
  # Imported here: a mistyped flag should not wait for jax.
  from fedjax_pfl.experiment import build
  from fedjax_pfl.report.summary import table
  from fedjax_pfl.train import train

  try:
    experiment = build(CONFIG.value.to_dict(), console.say)
    result = train(experiment, WORKDIR.value)
  except BadInput as error:
    sys.exit(f'{error}')
  console.say(table([result]))
  console.say(f'Everything about this run is in {WORKDIR.value}')


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)

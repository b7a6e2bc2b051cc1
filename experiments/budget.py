"""Print what a config sends, and how many rounds of FedAvg send as much:

  python experiments/budget.py --config=configs/digits.py:fedconcat

The equation is in fedjax_pfl/analysis/communication_budget.py. Nothing is
trained.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.analysis.communication_budget import (
    as_text,
    communication_budget,
  )
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings import parse_config

  progress.log(as_text(*communication_budget(parse_config(config))))


if __name__ == '__main__':
  commandline.run(main, required=['config'])

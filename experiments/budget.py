"""Print what a config sends, and how many rounds of FedAvg send as much:

  fedjax-pfl budget --config=digits:fedconcat

The equation is in fedjax_pfl/analysis/communication_budget.py. Nothing is
trained.
"""

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)


def main(overrides):
  config = commandline.read_settings(CONFIG.value, overrides)
  from fedjax_pfl.analysis import communication_budget as budget
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings import parse_config

  settings = parse_config(config)
  progress.log(budget.as_text(*budget.communication_budget(settings)))


if __name__ == '__main__':
  commandline.run(main, required=['config'])

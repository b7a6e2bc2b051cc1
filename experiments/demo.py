"""FedAvg and FedBABU on handwritten digits: the first thing to try.

  make demo

Runs both configs, then prints a table and the path of a figure. No download;
under a minute on two CPU cores.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from absl import app, flags, logging

WORKDIR = flags.DEFINE_string('workdir', 'runs/demo', 'Where the runs go.')
CONFIGS = ('fedavg_digits', 'fedbabu_digits')


def main(argv):
  del argv
  logging.set_verbosity(logging.WARNING)
  from fedjax_pfl import console
  from fedjax_pfl.experiment import build
  from fedjax_pfl.report.figure import compare
  from fedjax_pfl.report.summary import table
  from fedjax_pfl.train import train

  folders = [Path(WORKDIR.value) / name for name in CONFIGS]
  results = []
  for name, folder in zip(CONFIGS, folders, strict=True):
    console.say(f'configs/{name}.py')
    settings = importlib.import_module(f'configs.{name}').get_config()
    results.append(train(build(settings.to_dict(), console.say), str(folder)))
  console.say(table(results))
  figure = compare(folders, Path(WORKDIR.value) / 'figure.png')
  console.say(f'Figure: {figure}')


if __name__ == '__main__':
  app.run(main)

"""Methods on handwritten digits: the first thing to try.

  make demo       FedAvg and FedBABU; under a minute on two CPU cores
  make compare    every method that has a config for digits

Runs the configs, continuing what was broken off, then prints a table and the
paths of a figure and of a report page. No download.
"""

from pathlib import Path

import commandline
from absl import flags

from configs import digits

WORKDIR = flags.DEFINE_string('workdir', 'runs/demo', 'Where the runs go.')
METHODS = flags.DEFINE_list(
  'methods', ['fedavg', 'fedbabu'], 'The methods to train; or all.'
)
EPOCHS = (1, 2, 5)  # of fine-tuning, after which clients are evaluated


def evaluated_on_the_way(settings):
  """Return the settings, evaluated several times during fine-tuning."""
  from fedjax_pfl.settings import replace

  views = settings.evaluation.views
  if 'finetuned' not in views:
    return settings
  *stops, _ = (f'finetuned_{stop}' for stop in EPOCHS)
  views = (views[0], *stops, *views[1:])
  return replace(settings, {'views': views, 'finetune.epochs': EPOCHS})


def main():
  from fedjax_pfl.core import progress
  from fedjax_pfl.report import page
  from fedjax_pfl.report.overview import save_overview
  from fedjax_pfl.report.text_table import table
  from fedjax_pfl.settings import parse_config
  from fedjax_pfl.training import startup
  from fedjax_pfl.training.build import build_experiment
  from fedjax_pfl.training.loop import train

  startup.cache_programs(progress.log)
  methods = METHODS.value
  if methods == ['all']:
    methods = [*digits.EXPERIMENTS]
  folders = [Path(WORKDIR.value) / method for method in methods]
  results = []
  for method, folder in zip(methods, folders, strict=True):
    progress.log(f'configs/digits.py:{method}')
    settings = parse_config(digits.get_config(method).to_dict())
    experiment = build_experiment(evaluated_on_the_way(settings), progress.log)
    results.append(train(experiment, str(folder)))
  progress.log(table(results))
  figure = save_overview(folders, Path(WORKDIR.value) / 'methods.png')
  report = page.save(folders, Path(WORKDIR.value) / 'report.html')
  progress.log(f'Figure: {figure}')
  progress.log(f'Report: {report}, to be opened in a browser')


if __name__ == '__main__':
  commandline.run(main)

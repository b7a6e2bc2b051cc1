"""Methods on handwritten digits: the first thing to try.

  make demo       Local-only, FedAvg and FedBABU: what personalised federated
                  learning is for; about a minute on two CPU cores
  make compare    every method, by its config for digits

Trains, continuing what was broken off, then prints a table and the paths of a
figure and of a report page. No download.
"""

from pathlib import Path

import commandline
from absl import flags

from configs import common, digits
from configs.methods import METHODS as CHANGES

WORKDIR = flags.DEFINE_string('workdir', 'runs/demo', 'Where the runs go.')
METHODS = flags.DEFINE_list(
  'methods',
  ['local_only', 'fedavg', 'fedbabu'],
  'The methods to train by the protocol of the demo; or all, each by its '
  'config for digits.',
)
# 90 clients of 16 images each, of two to five digits: too few to train alone,
# too unlike for one model.
PROTOCOL = {
  'num_clients': 90,
  'shards_per_client': 5,
  'client_fraction': 0.2,
  'rounds': 25,
  'local_epochs': 5,
  'batch_size': 10,
  'learning_rate': 0.01,
  'lr_milestones': (),
  'finetune': {'epochs': (5,), 'batch_size': 10},
}
# As many epochs as a client of the others trains, on average, and fine-tunes.
ALONE = {'client_fraction': 1.0, 'rounds': 30, 'local_epochs': 1}
EPOCHS = (1, 2, 5)  # of fine-tuning, after which clients are evaluated


def config_of(method, by_own_config):
  """Return the config of a method: its own for digits, or the demo's."""
  if by_own_config:
    return digits.get_config(method)
  changes = digits.IMAGES | CHANGES.get(method, {}) | PROTOCOL
  if method == 'local_only':
    changes |= ALONE
  return common.base(algorithm=method, **changes)


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
  by_own_config = METHODS.value == ['all']
  methods = [*digits.EXPERIMENTS] if by_own_config else METHODS.value
  folders = [Path(WORKDIR.value) / method for method in methods]
  results = []
  for method, folder in zip(methods, folders, strict=True):
    progress.log(method)
    settings = parse_config(config_of(method, by_own_config).to_dict())
    experiment = build_experiment(evaluated_on_the_way(settings), progress.log)
    results.append(train(experiment, str(folder)))
  progress.log(table(results))
  figure = save_overview(folders, Path(WORKDIR.value) / 'methods.png')
  report = page.save(folders, Path(WORKDIR.value) / 'report.html')
  progress.log(f'Figure: {figure}')
  progress.log(f'Report: {report}, to be opened in a browser')


if __name__ == '__main__':
  commandline.run(main)

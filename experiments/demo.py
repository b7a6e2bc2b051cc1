"""Three methods on handwritten digits: the first thing to try.

  make demo       Local-only, FedAvg and FedBABU: what personalised federated
                  learning is for; half a minute to three on two CPU cores
  make compare    every method by the same protocol (compare.py)

90 clients have 16 images each, of which 3 are kept for the choice of learning
rates (results/leaderboard/demo_counts.csv). Then the same methods on patients
of four hospitals (configs/heart.py), each with its accuracy.

Trains, continuing what was broken off, then prints a table and the paths of a
figure and of a report page. No download.
"""

from pathlib import Path

import commandline
from absl import flags

from configs import common
from configs.leaderboard import load_form

WORKDIR = flags.DEFINE_string('workdir', 'runs/demo', 'Where the runs go.')
SEEDS = flags.DEFINE_string(
  'seeds', '1', 'number of seeds, from 0 on; or 3:6 for the seeds 3, 4, 5'
)
RESULTS = Path(__file__).parents[1] / 'results'
COUNTS = RESULTS / 'leaderboard' / 'demo_counts.csv'
METHODS = 'local_only', 'fedavg', 'fedbabu'
PARTITION = 's=5'
EPOCHS = (1, 2)  # of fine-tuning, after which clients are evaluated, too
INITIAL, FINETUNED = 'initial', 'finetuned'


def load_choices():
  """Return learning rate and views of each method, as chosen on validation."""
  from fedjax_pfl.results.runs import stored_counts

  _, entries = stored_counts.read([COUNTS])
  choices = {}
  for entry in entries[PARTITION]:
    if entry.method in METHODS:
      views = (*[INITIAL] * bool(entry.before), entry.choice.view)
      choices[entry.method] = entry.choice.fields['learning_rate'], views
  return {method: choices[method] for method in METHODS}


def plan_of(form, method, rate, views, seeds):
  """Return the plan of a method; of one seed also on the way of fine-tuning."""
  from fedjax_pfl.compare.form import Unit
  from fedjax_pfl.compare.plan import with_seeds
  from fedjax_pfl.settings import replace

  unit = Unit(form, PARTITION, method)
  settings = unit.settings({'learning_rate': rate}, 0, views)
  if len(seeds) == 1:
    changes = {'eval_every': 5, 'eval_views': views[:1]}
    if FINETUNED in views:
      stops = (f'{FINETUNED}_{stop}' for stop in EPOCHS)
      changes['views'] = (*views[:-1], *stops, FINETUNED)
      changes['finetune.epochs'] = (*EPOCHS, max(settings.finetune.epochs))
    settings = replace(settings, changes)
  return with_seeds(settings, {'method': method}, seeds)


def hospitals(seeds):
  """Train the methods on patients, and print the accuracy of each hospital."""
  from fedjax_pfl.compare.plan import with_seeds
  from fedjax_pfl.compare.train import in_folder, train
  from fedjax_pfl.core import progress
  from fedjax_pfl.results.runs.run import extremes
  from fedjax_pfl.settings import parse_config

  plan = []
  for method in METHODS:
    settings = parse_config(common.load(f'heart:{method}').to_dict())
    plan += with_seeds(settings, {'method': method}, seeds)
  paths = train(plan, in_folder(Path(WORKDIR.value, 'heart')), progress.log)
  for planned, path in zip(plan, paths, strict=True):
    progress.log(f'{planned.settings.algorithm}, {extremes(path)}')


def main():
  from experiments import overview
  from fedjax_pfl.compare.combinations import parse_seeds
  from fedjax_pfl.compare.train import in_folder, train
  from fedjax_pfl.core import progress
  from fedjax_pfl.results.page import render as page
  from fedjax_pfl.results.tables.result_table import table
  from fedjax_pfl.runs import run_dir
  from fedjax_pfl.training import compile_cache

  compile_cache.cache_programs(progress.log)
  form, seeds = load_form('demo'), parse_seeds(SEEDS.value)
  plan = [
    planned
    for method, (rate, views) in load_choices().items()
    for planned in plan_of(form, method, rate, views, seeds)
  ]
  paths = train(plan, in_folder(WORKDIR.value), progress.log)
  if len(seeds) == 1:
    progress.log(table([run_dir.load_result(path) for path in paths]))
  else:
    progress.log(overview.as_table(paths))
  hospitals(seeds)
  figure = overview.save_overview(paths, Path(WORKDIR.value) / 'methods.png')
  report = page.save(paths, Path(WORKDIR.value) / 'report.html')
  progress.log(f'Figure: {figure}')
  progress.log(f'Report: {report}, to be opened in a browser')


if __name__ == '__main__':
  commandline.run(main, packages=['matplotlib', 'jinja2'])

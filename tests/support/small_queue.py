"""A queue of small trainings on the digits."""

import csv

import small_runs

from configs import common
from fedjax_pfl.reproduction.cells import Cell, Published, Reading, Table
from fedjax_pfl.reproduction.queue import load_queue, show_queue, work_through
from fedjax_pfl.settings import parse_config, to_config
from fedjax_pfl.training.warm_start import load_start

EVERY_ROUND = {'log_every': 1, 'eval_every': 1, 'checkpoint_every': 1}
BABU = small_runs.make_settings(rounds=3, **EVERY_ROUND)
LG = small_runs.make_settings(
  algorithm='lg_fedavg', rounds=2, hp={'train_fedavg': False}, **EVERY_ROUND
)
HOT = small_runs.make_settings(
  algorithm='fedavg', rounds=2, learning_rate=1e30, **EVERY_ROUND
)
TEXT = """
[claims]
a = 'the first'
b = 'the second'
"""
ENTRY = """
[[cells]]
claim = '{}'
table = '{}'
where = '{}'
seeds = {}
minutes = {}
"""
ENTRIES = (
  ('a', 'fedbabu/98', 'algorithm=fedavg', [0], 1),
  ('a', 'fedbabu/98', 'algorithm=lg_fedavg', [0], 2),
  ('b', 'fedbabu/99', 'algorithm=fedbabu', [0, 1], 1.5),
)
QUEUE = TEXT + ''.join(ENTRY.format(*entry) for entry in ENTRIES)


def cell_of(settings, metric, reading, table='98', **more):
  setting = ('digits', 'tiny', settings['algorithm'], 10, 2, 0.3, 1, 'shards')
  published = Published('fedbabu', table, *setting, metric, {}, 50.0, 9.0)
  return Cell(published, settings, reading, **more)


BEST = Reading('initial', 'best_round')
BODY = {'finetune.trainable': 'body'}
CELLS = {
  '98': (
    cell_of(HOT, 'initial_accuracy', Reading('initial')),
    cell_of(LG, 'personalized_accuracy', BEST, init_from=BABU),
  ),
  '99': (
    cell_of(BABU, 'initial_accuracy', Reading('initial'), '99'),
    cell_of(
      *(BABU, 'personalized_accuracy', Reading('finetuned'), '99'),
      evaluation=BODY,
    ),
  ),
}


def load_table(name):
  cells = CELLS[name.partition('/')[2]]
  return Table(name, 'A toy', cells, ('algorithm',), ('metric',))


def run(folder, **options):
  """Work through the queue of a folder, in its results/."""
  configs = {'digits': parse_config(common.load('digits:fedbabu').to_dict())}
  queue = load_queue(folder / 'queue.toml', load_table)
  work_through(queue, folder / 'results', load_table, configs, **options)


def show(folder, place):
  """Print the queue of a folder, as its results in `place` have it."""
  show_queue(load_queue(folder / 'queue.toml', load_table), place)


def build(settings, log):
  """Return an experiment whose model compiles quickly."""
  experiment = small_runs.make_experiment(**to_config(settings))
  if not settings.init_from:
    return experiment
  task = small_runs.TASK
  start = load_start(settings.init_from, settings.model.name, (8, 8, 1), task)
  data_id = start.identify(settings.algorithm, experiment)
  return experiment._replace(task=start.begin(task), data_id=data_id)


def rows_of(folder):
  """Return what a queue leaves in a folder, but times and the commit."""
  rows, changing = {}, {'seconds': '', 'commit': ''}
  with open(folder / 'summary.csv', newline='') as stream:
    rows['summary.csv'] = [
      {**line, **changing} for line in csv.DictReader(stream)
    ]
  for path in sorted(folder.glob('tables/*')):
    rows[path.name] = path.read_bytes()
  for path in sorted(folder.glob('runs/**/result.json')):
    run = path.parent
    rows[str(run.relative_to(folder))] = small_runs.numbers_of(run)
  return rows

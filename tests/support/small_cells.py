"""Cells of small trainings on the digits."""

import small_runs

from fedjax_pfl.reproduction.cells import Cell, Published, Reading, Table
from fedjax_pfl.settings import to_config
from fedjax_pfl.training.warm_start import load_start

EVERY_ROUND = {'log_every': 1, 'eval_every': 1, 'checkpoint_every': 1}
BABU = small_runs.make_settings(rounds=3, **EVERY_ROUND)
LG = small_runs.make_settings(
  algorithm='lg_fedavg', rounds=2, hp={'train_fedavg': False}, **EVERY_ROUND
)
HOT = small_runs.make_settings(
  algorithm='fedavg', rounds=2, learning_rate=1e30, **EVERY_ROUND
)


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


def build(settings, log):
  """Return an experiment whose model compiles quickly."""
  experiment = small_runs.make_experiment(**to_config(settings))
  if not settings.init_from:
    return experiment
  task = small_runs.TASK
  start = load_start(settings.init_from, settings.model.name, (8, 8, 1), task)
  data_id = start.identify(settings.algorithm, experiment)
  return experiment._replace(task=start.begin(task), data_id=data_id)

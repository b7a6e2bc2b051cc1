"""Your own table, a client a word in one of its columns: any method.

  fedjax-pfl train --config=own_table:fedavg --config.data_dir=FILE.csv \\
      --config.label=COLUMN --config.client=COLUMN --workdir=runs/own

FILE.csv or FILE.parquet has a row an example; docs/howto/tables.md says what
its columns become. A column with the words train and test: --config.split. Each
client has its own rows, a fifth of them for testing without that column, and
takes part in each of 40 rounds of one epoch.
"""

from configs import common
from configs.heart import EXPERIMENTS, SPECIAL
from configs.methods import METHODS

OWN_DATA = True
TABLE = {
  'dataset': 'table',
  'model': 'mlp',
  'partition': 'natural',
  'num_clients': 0,  # those of the table
  'client_fraction': 1.0,
  'rounds': 40,
  'local_epochs': 1,
  'batch_size': 16,
  'finetune': {'batch_size': 16},
  'learning_rate': 0.03,
  'eval_every': 10,
}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedavg')
  changes = METHODS.get(method, {}) | TABLE | SPECIAL.get(method, {})
  return common.base(arg, algorithm=method, **changes)

"""FLamby's benchmark: four hospitals (heart) and six regions (brca).

Rates are those of its config files.
"""

from typing import Any

from configs import common
from configs.tables.common import published
from experiments.natural import sets
from experiments.reproduction.cells import Cell, Published, Reading, Table
from fedjax_pfl.data.stored_arrays import data_root

SETS = {
  'heart': {
    **{'dataset': 'heart', 'loss': 'logistic', 'standardise': 'client'},
    **{'num_clients': 4, 'batch_size': 4, 'rounds': 15},
  },
  'brca': {
    **sets.fields_of('brca', data_root()),
    **{'num_clients': 6, 'batch_size': 8, 'rounds': 5},
  },
}
SGD = {'momentum': 0.0, 'local_steps': 100, 'lr_milestones': ()}
ADAM = {'optimizer': 'adam', 'rounds': 1, 'lr_milestones': ()}  # never anew
EPOCHS = {'heart': 50, 'brca': 30}  # of local and pooled training
# Learning rates of heart and brca: of clients, and of the server's optimiser.
RATES = {
  'local': (0.001, 0.1),
  'pooled': (0.001, 0.1),
  **dict.fromkeys(('cyclic', 'in_turn'), (0.01, 0.01)),
  'fedavg': (0.001, 0.1),
  'fedprox': (0.001, 0.1),
  'scaffold': (0.001, 0.01),
  'fedadam': (0.01, 0.01),
  'fedyogi': (0.003162, 0.01),
  'fedadagrad': (0.003162, 0.01),
}
SERVER_RATES = {
  'fedadam': (0.01, 0.1),
  'fedyogi': (0.01, 0.1),
  'fedadagrad': (0.316228, 1.0),
}
CLIENTS = {
  'heart': ('cleveland', 'hungarian', 'switzerland', 'va'),
  'brca': ('Northeast', 'South', 'West', 'Midwest', 'Europe', 'Canada'),
}
TURNS = {'heart': 4, 'brca': 1}  # of the first client, in most orders
MU = {'heart': 0.01, 'brca': 0.1}
TUNED = ', finetuned'  # after the name of a strategy
OURS = f'fedavg{TUNED}', 'in_turn'  # without a printed number
VIEWS = {'local': 'personal', OURS[0]: 'finetuned'}
TITLES = {
  'heart': 'Fed-Heart-Disease, accuracy by hospital',
  'brca': 'Fed-TCGA-BRCA, concordance by region',
}


def settings_of(name: str, strategy: str) -> dict[str, Any]:
  """Return the config of a strategy; of `pooled` that of its one client."""
  column = [*SETS].index(name)
  fields = {'algorithm': 'fedavg', **SGD}
  if strategy in SERVER_RATES:
    rate = SERVER_RATES[strategy][column]
    hp = {'optimizer': strategy.removeprefix('fed'), 'learning_rate': rate}
    fields |= {'algorithm': 'fedopt', 'hp': hp | {'beta_2': 0.999, 'tau': 1e-8}}
  elif strategy == 'fedprox':
    fields |= {'algorithm': 'fedprox', 'hp': {'mu': MU[name]}}
  elif strategy == 'scaffold':
    fields |= {'algorithm': 'scaffold'}
  elif strategy == 'in_turn':
    share = 1 / SETS[name]['num_clients']
    fields |= {'sampling': 'in_turn', 'client_fraction': share}
  elif strategy == 'cyclic':
    fields |= {'unseen_clients': CLIENTS[name][1:], 'rounds': TURNS[name]}
  elif strategy == 'fedavg':
    fields |= {'views': ('initial', 'finetuned')}
  elif strategy == 'local':
    fields = {'algorithm': 'local_only', **ADAM, 'views': ('personal',)}
  elif strategy == 'pooled':
    own = {'num_clients': 1, 'partition': 'iid', 'test_partition': 'whole'}
    fields = {'algorithm': 'centralized', **ADAM, **own}
    fields |= {'standardise': 'all'} if name == 'heart' else {}
  whole = {
    **{'model': 'linear', 'partition': 'natural', 'aggregation': 'examples'},
    **{'views': ('initial',), 'eval_views': (), 'client_fraction': 1.0},
    **{'learning_rate': RATES[strategy][column], 'local_epochs': EPOCHS[name]},
  }
  return common.base(**whole | SETS[name]).to_dict() | fields


def cell_of(printed: Published) -> Cell:
  """Return the cell of a client, or of the mean over clients."""
  name, strategy = printed.dataset, printed.variant['strategy']
  view = VIEWS.get(strategy, 'initial')
  settings, start = settings_of(name, strategy.removesuffix(TUNED)), None
  if strategy == 'pooled':  # then evaluated by client, in its own scale
    settings, start = settings_of(name, 'fedavg') | {'rounds': 0}, settings
  who = printed.variant['client'].replace('mean', '')
  return Cell(
    printed, settings, Reading(view, printed.metric, who), init_from=start
  )


def load(paper: str, number: str) -> Table:
  """Return the table of a set: strategies and clients."""
  rows = [
    one for one in published() if (one.paper, one.table) == (paper, number)
  ]
  firsts = [one for one in rows if one.variant['strategy'] == 'pooled']
  for strategy in OURS:
    for one in firsts:
      variant = one.variant | {'strategy': strategy}
      rows.append(one._replace(variant=variant, mean=None, std=None))
  cells = map(cell_of, rows)
  return Table(
    f'{paper}/{number}', TITLES[number], (*cells,), ('strategy',), ('client',)
  )


# All clients in every round, 100 steps of SGD of each, weights n_i / n. Local
# and pooled models are trained by Adam. Printed: the metric of each client's
# tests; mean and deviation of five seeds, which draw initial models and
# batches: the split is one. `local` is a client's model on its own tests. Two
# rows are ours alone: FedAvg with fine-tuning, for which the config files have
# a rate but the results no number, and clients who train one model in turn.
# Differs: a partial batch ends each pass of a round, whose first pass is new;
# SCAFFOLD's variates are averaged with equal weights.
TABLES = dict.fromkeys(SETS, load)

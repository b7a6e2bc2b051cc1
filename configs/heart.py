"""All methods on the heart disease data of four hospitals: no download.

  fedjax-pfl train --config=heart:fedavg --workdir=runs/heart

or another METHOD, `configs/heart.py:METHOD`; FedAvg by default. Each hospital
is a client, with its own patients, and takes part in every round; columns are
standardised by a hospital's own training rows, as in FLamby.
"""

from configs import common
from configs.methods import METHODS
from fedjax_pfl.algorithms import available

HEART = {
  'dataset': 'heart',
  'standardise': 'client',
  'model': 'mlp',
  'partition': 'natural',
  'num_clients': 0,  # the four hospitals
  'client_fraction': 1.0,
  'rounds': 20,
  'local_epochs': 2,
  'batch_size': 16,
  'finetune': {'batch_size': 16},
  'learning_rate': 0.03,
  'eval_every': 5,
}
SPECIAL = {'superfed': {'views': ('initial', 'mix_0.5', 'mix_1.0')}}
OF_ONE = 'centralized', 'fedconcat'  # they divide the rows by themselves
EXPERIMENTS = [name for name in available() if name not in OF_ONE]


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedavg')
  changes = METHODS.get(method, {}) | HEART | SPECIAL.get(method, {})
  return common.base(arg, algorithm=method, **changes)

"""All methods on the heart disease data of four hospitals: no download.

  fedjax-pfl train --config=heart:fedavg --workdir=runs/heart

or another METHOD, `configs/heart.py:METHOD`; FedAvg by default. Each hospital
is a client, with its own patients, and takes part in every round; columns are
standardised by a hospital's own training rows, as in FLamby. Some 20 seconds on
2 CPU cores, most of them compilation. Prints test accuracy, of one seed, mean
and std over hospitals, then that of each:

  METHOD       one model       another view
  local_only                   80.8 +- 7.6 personal
  fedavg       69.7 +- 8.9     73.0 +- 3.2 finetuned
  fedbabu      71.6 +- 6.6     77.9 +- 2.8 finetuned
  ditto        69.7 +- 8.9     80.6 +- 7.8 personal

No rate was chosen, and 16 patients of `switzerland` are tests, 15 of them ill:
nothing is ranked by this.
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

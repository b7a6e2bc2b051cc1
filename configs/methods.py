"""What each method changes in a config, and the protocol of the FedBABU paper.

configs/fedbabu_DATASET.py are the experiments of that paper. The other files
are the protocols of other papers.

A method is trained as its paper has it. The FedBABU paper's numbers of some
are, or most likely are, of its public code, which `hp.protocol=released` is:

  ditto      averages the models pulled, and evaluates nine clients of ten by
             the last global model but one
  fedper     throws heads away after every round
  fedrep     has as many head epochs before the test as in a round
  lg_fedavg  FedAvg's run, then a quarter of its rounds; without fine-tuning,
             of every client the model of its best round on the TEST set, with
             the mean head of these models (test_best/initial/finished). Without
             it total_epochs are FedAvg's (320, 80 or 32 rounds for local_epochs
             1, 4 or 10), and a quarter as many rounds follow

The printed numbers of local_only are of each client's best epoch on the TEST
set (test_best/personal/each in result.json; the run prints the last epoch). A
number of per_fedavg is after one step on half of a client's tests, on the rest.
"""

from collections.abc import Collection

from ml_collections import config_dict

from configs import common

BOTH = {'views': ('initial', 'personal')}
ALONE = {'views': ('personal',), 'eval_views': ('personal',)}
NEAREST = {'views': ('personal', 'prototypes'), 'eval_views': ('prototypes',)}
# By any protocol; a method that is not here changes nothing but its name.
METHODS = {
  **dict.fromkeys(
    ('apfl', 'ditto', 'fedala', 'feddbe', 'fedkd', 'fedrod', 'fml'), BOTH
  ),
  **dict.fromkeys(
    ('fedamp', 'fd', 'fedas', 'fedcp', 'fedfomo', 'gpfl', 'pfedgraph'), ALONE
  ),
  'centralized': {
    'hp': {'trainable': 'full'},  # or 'body', 'head'
    'partition': 'iid',
    'test_partition': 'whole',  # in the order of the file
    'head_bias': 'zero',
    'num_clients': 1,
    'client_fraction': 1.0,
    'local_epochs': 1,
    'weight_decay': 5e-4,
    'views': ('initial',),
  },
  **dict.fromkeys(('fedproto', 'fedtgp'), NEAREST),
  'knn_per': {'views': ('initial', 'neighbours')},
  'local_only': {
    'client_fraction': 1.0,
    'local_epochs': 1,  # evaluated after each, as the published number needs
    'batch_size': 10,  # the paper has none; the default of its public code
    **ALONE,
  },
  'per_fedavg': {'views': ('initial', 'adapted')},
  'pfedme': BOTH,
}
# In the FedBABU paper.
DATASETS = {
  'cifar10': {'dataset': 'cifar10', 'model': 'convnet4'},
  'cifar100': {'dataset': 'cifar100', 'model': 'mobilenet'},
  'emnist': {
    'dataset': 'emnist/byclass',
    'model': 'convnet3',
    'num_clients': 1488,
    'shards_per_client': 6,
    'aggregation': 'examples',  # n_i / n, as the paper has it; its code: 1 / m
  },
}
FEDBABU = {
  'centralized': {'total_epochs': 160, 'batch_size': 128, 'eval_every': 1},
  'lg_fedavg': {
    'eval_every': 1,  # of the public code, for test_best
    'checkpoint_every': 2,
  },
  'local_only': {'total_epochs': 160, 'eval_every': 1, 'checkpoint_every': 20},
  # As in the paper's tables; its standard deviations show 50 tests.
  'per_fedavg': {'adapt_on': 'test_half'},
}
OF_FEDBABU = (
  *('centralized', 'ditto', 'fedavg', 'fedbabu', 'fedper', 'fedprox'),
  *('fedrep', 'lg_fedavg', 'local_only', 'per_fedavg'),
)


def fedbabu_paper(
  arg: str, dataset: str, experiments: Collection[str] = OF_FEDBABU
) -> config_dict.ConfigDict:
  """Return the config of a method and a data set in the FedBABU paper."""
  method, arg = common.choose(arg, experiments, default='fedbabu')
  config = common.base(
    arg,
    algorithm=method,
    **DATASETS[dataset] | METHODS.get(method, {}) | FEDBABU.get(method, {}),
  )
  if method == 'local_only' and dataset == 'cifar100':
    config.checkpoint_every = 40  # one takes 2.6 GB
  if config.quick and dataset == 'emnist':
    config.shards_per_client = 31  # with 10 clients: a multiple of 62 classes
  return config

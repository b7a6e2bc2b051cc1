"""What each method changes in a config, and the protocol of the FedBABU paper.

configs/METHOD_DATASET.py are the experiments of that paper. The protocols of
the others are in digits.py, superfed.py and fedconcat.py.
"""

from ml_collections import config_dict

from configs import common

# By any protocol; a method that is not here changes nothing but its name.
METHODS = {
  'apfl': {'views': ('initial', 'personal')},
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
  'ditto': {'views': ('initial', 'personal')},
  'local_only': {
    'client_fraction': 1.0,
    'local_epochs': 1,  # evaluated after each, as the published number needs
    'batch_size': 10,  # the paper has none; the default of its public code
    'views': ('personal',),
    'eval_views': ('personal',),
  },
  'per_fedavg': {'views': ('initial', 'adapted')},
  'pfedme': {'views': ('initial', 'personal')},
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
  'local_only': {
    'total_epochs': 160,
    'eval_every': 1,
    'checkpoint_every': 20,
  },
  # As in the paper's tables; its standard deviations show 50 tests.
  'per_fedavg': {'adapt_on': 'test_half'},
}


def fedbabu_paper(
  arg: str, method: str, dataset: str, **changes
) -> config_dict.ConfigDict:
  """Return the config of a method and a data set in the FedBABU paper."""
  config = common.base(
    arg,
    algorithm=method,
    **DATASETS[dataset]
    | METHODS.get(method, {})
    | FEDBABU.get(method, {})
    | changes,
  )
  if config.quick and dataset == 'emnist':
    config.shards_per_client = 31  # with 10 clients: a multiple of 62 classes
  return config

"""All methods on scikit-learn's 8x8 digits: a first look, no download.

  fedjax-pfl train --config=digits:fedbabu --workdir=runs/x

or another METHOD, `configs/digits.py:METHOD`; FedBABU by default. 20 clients
with 5 shards each, about 72 images; five take part in a round. Half a minute to
a minute on 2 CPU cores. Prints test accuracy, mean and std over clients:

  METHOD       one model       another view
  local_only                   96.5 +- 4.4 personal
  fedavg       97.3 +- 3.6     98.9 +- 2.7 finetuned
  fedbabu      97.0 +- 4.4     99.7 +- 1.1 finetuned
  fedper                       99.4 +- 1.7 finetuned
  moon         96.9 +- 4.5     98.9 +- 2.7 finetuned
  apfl         97.0 +- 4.0     99.1 +- 2.1 personal
  ditto        95.6 +- 5.3     97.2 +- 4.4 personal
  per_fedavg   96.9 +- 3.7     96.9 +- 3.7 adapted

One seed of 355 test images does not rank these methods; the leaderboard has
more. A round of centralized and local_only is an epoch, not five. fedconcat has
two classes a client and 3 clusters; lg_fedavg 16 rounds of FedAvg, then 4 more.
"""

from configs import common
from configs.methods import METHODS
from fedjax_pfl.algorithms import available

IMAGES = {
  'dataset': 'digits',
  'model': 'convnet3',  # 8x8 pixels allow three poolings
  # Validation chose it for FedAvg from 0.003, 0.01, 0.03 and 0.1.
  'learning_rate': 0.01,
}
# For these it chose a higher one, here or on the leaderboard.
FASTER = (
  *('ditto', 'fedala', 'fedcp', 'feddbe', 'fedrod', 'knn_per'),
  *('per_fedavg', 'superfed'),
)
SHARDS = {
  'num_clients': 20,
  'shards_per_client': 5,
  'client_fraction': 0.25,
  'total_epochs': 80,  # of LG-FedAvg's FedAvg; a quarter as many follow
  'local_epochs': 5,
  'batch_size': 20,  # a client has about 72 images
  'finetune': {'batch_size': 20},
}
SPECIAL = {
  'centralized': {'total_epochs': 20, 'batch_size': 32},
  'fedconcat': {
    'hp': {'clusters': 3, 'classifier_rounds': 60, 'noise_inputs': 1000},
    'partition': 'classes',
    'num_clients': 20,
    'client_fraction': 0.5,
    'total_epochs': 60,
    'local_epochs': 5,
    'batch_size': 20,
    'lr_milestones': (),  # the classifier begins after the encoders' last round
    'log_every': 3,
    'views': ('initial',),
  },
  'local_only': {
    'num_clients': 20,
    'shards_per_client': 5,
    'total_epochs': 40,
    'log_every': 5,  # a dispatch costs as much as a round of so few images
    'eval_every': 5,
  },
  # Validation chose it from 0.01 and 0.1.
  'pfedhn': SHARDS | {'hp': {'server_learning_rate': 0.1}},
  'superfed': SHARDS | {'views': ('initial', 'mix_0.5', 'mix_1.0')},
}
EXPERIMENTS = {name: SPECIAL.get(name, SHARDS) for name in available()}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedbabu')
  changes = IMAGES | METHODS.get(method, {}) | EXPERIMENTS[method]
  if method in FASTER:
    changes |= {'learning_rate': 0.03}
  return common.base(arg, algorithm=method, **changes)

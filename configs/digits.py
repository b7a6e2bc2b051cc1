"""All methods on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/digits.py:fedbabu --workdir=runs/x

or another METHOD, `configs/digits.py:METHOD`; FedBABU by default. 20 clients
with 2 shards each; five take part in a round. Half a minute to a minute on 2
CPU cores. Prints accuracy, mean and std over clients:

  METHOD       view initial    another view
  apfl         44.1 +- 33.4    82.1 +- 28.4 personal
  ditto        44.1 +- 33.4    97.8 +- 3.3 personal
  fedlc        51.7 +- 25.3    96.4 +- 3.7 finetuned
  fedper       99.2 +- 2.0     99.2 +- 2.0 finetuned
  fedprox      49.3 +- 32.4    89.6 +- 10.9 finetuned
  fedrep       98.6 +- 3.0     98.9 +- 2.3 finetuned
  fedrs        69.6 +- 19.8    95.8 +- 4.7 finetuned
  moon         32.1 +- 27.6    42.0 +- 31.5 finetuned; rounding alone moves it:
                               81.3 with --config.conv_impl=lax
  per_fedavg   72.1 +- 22.0    73.0 +- 21.6 adapted
  pfedme       74.3 +- 21.3    99.2 +- 2.0 personal
  scaffold     51.6 +- 25.6    75.8 +- 21.5 finetuned
  superfed     52.3 +- 27.5    85.5 +- 29.7 mix_0.5, 88.9 +- 25.1 mix_1.0

A round of centralized and local_only is an epoch, not five. fedconcat has two
classes a client and 3 clusters; lg_fedavg 16 rounds of FedAvg, then 4 more.
"""

from configs import common
from configs.methods import METHODS
from fedjax_pfl.algorithms import available

IMAGES = {
  'dataset': 'digits',
  'model': 'convnet3',  # 8x8 pixels allow three poolings
}
SHARDS = {
  'num_clients': 20,
  'shards_per_client': 2,
  'client_fraction': 0.25,
  'total_epochs': 80,  # of LG-FedAvg's FedAvg; a quarter as many follow
  'local_epochs': 5,
  'batch_size': 20,  # a client has about 72 images
  'finetune': {'batch_size': 20},
}
SPECIAL = {
  'centralized': {'total_epochs': 20, 'batch_size': 32, 'learning_rate': 0.05},
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
    'shards_per_client': 2,
    'total_epochs': 40,
    'log_every': 5,  # a dispatch costs as much as a round of so few images
    'eval_every': 5,
  },
  'superfed': SHARDS | {'views': ('initial', 'mix_0.5', 'mix_1.0')},
}
EXPERIMENTS = {name: SPECIAL.get(name, SHARDS) for name in available()}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedbabu')
  changes = IMAGES | METHODS.get(method, {}) | EXPERIMENTS[method]
  return common.base(arg, algorithm=method, **changes)

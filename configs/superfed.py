"""SuPerFed (first version): its four data sets, and baselines on CIFAR-10.

  fedjax-pfl train --config=superfed:cifar10 \\
      --workdir=runs/superfed_cifar10

Published (superfed/1, top-1): 45.35
Published (superfed/1, top-5): 89.87

on the global test set, of SuPerFed-MM with two classes a client; with
--config.hp.mixing=layer (and phase_start=0.8 on CIFAR-10) it is SuPerFed-LM.
Another word after the colon is another data set or method; the training is
that of the first public code, whose distance is not squared, and all clients
begin with one private model. With --config.hp.protocol=paper
--config.hp.local_init=client it is that of the paper's equations. Views mix a
client's model with the server's last one, as the final code does; the first
code takes the one that the client last trained where it was outside the last
cohort (--config.hp.pairing=stale).

cifar10: the personal accuracies of this version are lost. The KDD version's
setting (other network, 500 rounds, 5 clients a round, every client its best
lambda by TEST accuracy): 93.25 +- 3.80. Wall time: 0.4 million steps of 20
images.

cifar100: as in the paper's text, 100 clients of 500 images and two classes; its
script has 200 of five classes (--config.num_clients=200
--config.shards_per_client=5).

emnist: EMNIST by classes, 1,543 clients of one of five clusters of classes, 100
to 799 images each. tiny_imagenet: 390 clients of one of ten clusters of
classes, 100 to 399 images each.

fedavg, fedprox: FedAvg-LU and FedProx-LU are the view `local_update`: an epoch
on the client's own images, in which FedProx keeps its distance term.

apfl: its tuning there is not published, and its global model is FedAvg's. What
the final public code calls APFL (alpha = 0.25, fixed):
--config.hp.protocol=released. KDD version: 91.73 +- 4.61 personal.

pfedme: published by the KDD version (another network, 500 rounds): 92.07 +-
5.05; but its commands ran APFL under this name.
"""

from configs import common
from configs.methods import METHODS

PROTOCOL = {
  'dataset': 'cifar10',
  'preprocessing': 'unit',
  'model': 'superfed_cnn',
  'partition': 'pathological',
  'num_clients': 100,
  'shards_per_client': 2,
  'test_partition': 'split',  # a fifth of a client's own images
  'eval_global_model': True,  # the server's model: on the 10,000 test images
  'client_fraction': 0.1,
  'rounds': 200,
  'local_epochs': 10,
  'batch_size': 20,
  'learning_rate': 0.01,
  'lr_decay': 0.995,
  'lr_milestones': (),
  'aggregation': 'examples',
}
# The training behind the printed numbers.
FIRST_CODE = {'protocol': 'first_code', 'local_init': 'shared'}
SUPERFED = {
  'algorithm': 'superfed',
  'hp': FIRST_CODE,
  'views': ('initial', *(f'mix_{value / 10}' for value in range(11))),
}
LOCAL_UPDATE = {
  'views': ('initial', 'local_update'),
  'finetune': {'epochs': (1,), 'learning_rate': 0.01, 'batch_size': 20},
}
EXPERIMENTS = {
  'cifar10': SUPERFED,  # mixing begins after 0.4 of the rounds, by default
  'cifar100': {
    **SUPERFED,
    'hp': {**FIRST_CODE, 'phase_start': 0.5},
    'dataset': 'cifar100',
    'rounds': 300,
  },
  'emnist': {
    **SUPERFED,
    'dataset': 'emnist/byclass',
    'partition': 'semantic',
    'num_clients': 1543,
    'class_families': (10, 26, 26),  # digits, upper and lower case
    'client_fraction': 0.01,
    'rounds': 100,
  },
  'tiny_imagenet': {
    **SUPERFED,
    'dataset': 'tiny_imagenet',
    'partition': 'semantic',
    'num_clients': 390,
    'class_clusters': 10,
    'max_client_size': 400,
    'client_fraction': 0.03,
    'rounds': 500,
  },
  'apfl': {'algorithm': 'apfl', **METHODS['apfl']},
  'fedavg': {'algorithm': 'fedavg', **LOCAL_UPDATE},
  'fedprox': {
    'algorithm': 'fedprox',
    # The distance is not squared, as in its public code.
    'hp': {'mu': 0.01, 'distance': 'norm'},
    **LOCAL_UPDATE,
  },
  'pfedme': {'algorithm': 'pfedme', **METHODS['pfedme']},
}


def get_config(arg=''):
  experiment, arg = common.choose(arg, EXPERIMENTS, default='cifar10')
  config = common.base(arg, **PROTOCOL | EXPERIMENTS[experiment])
  if config.quick and experiment == 'cifar100':
    config.shards_per_client = 10  # with 10 clients: a multiple of 100 classes
  return config

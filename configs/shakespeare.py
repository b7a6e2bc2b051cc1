"""The tiny Shakespeare, a client for each of 156 roles: the next character.

  fedjax-pfl prepare shakespeare
  fedjax-pfl train --config=shakespeare:fedavg \\
      --workdir=runs/shakespeare_fedavg

or another METHOD, `configs/shakespeare.py:METHOD`; FedAvg by default. Ten roles
take part in a round, with the first half of their text. All six methods took 24
minutes of CPU time beside other work, 12 of two cores. Prints the accuracy of
the next character, and bits per character (bits_per_token).

A round of local_only is an epoch of all roles.
"""

from configs import common
from configs.methods import METHODS

PLAY = {
  'dataset': 'shakespeare',
  'max_train_examples': 5000,  # of 9,895: so that a role is drawn three times
  'model': 'char_lstm',
  'partition': 'natural',
  'num_clients': 156,
  'client_fraction': 0.065,
  'rounds': 47,
  'local_epochs': 1,
  'batch_size': 10,
  'optimizer': 'adam',  # SGD takes three times the steps to 4 bits
  'learning_rate': 0.01,
  'lr_milestones': (),
  'aggregation': 'examples',
  'eval_every': 47,  # once
  'finetune': {'epochs': (1,), 'batch_size': 10, 'learning_rate': 0.1},
}
MIXED = {
  'hp': {'twice': 'all', 'grid': (0.5,)},  # as in its code of this model
  'views': ('initial', 'mix_0.5'),
}
EXPERIMENTS = {
  **dict.fromkeys(('ditto', 'fedavg', 'fedbabu', 'fedrep'), PLAY),
  'local_only': PLAY | {'client_fraction': 1.0, 'rounds': 4},
  'superfed': PLAY | MIXED,
}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedavg')
  changes = METHODS.get(method, {}) | EXPERIMENTS[method]
  config = common.base(arg, algorithm=method, **changes)
  config.num_clients = 156  # of a quick run, too: as many as the data have
  return config

"""Centralised training in FedConcat's setting for CIFAR-10 (Table 1).

  python experiments/main.py --config=configs/centralized_fedconcat.py \\
      --workdir=runs/centralized_fedconcat

Published: 70.2; its number of epochs is not, 100 is ours.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(
    arg,
    algorithm='centralized',
    partition='iid',
    num_clients=1,
    rounds=100,
    local_epochs=1,
    aggregation='uniform',
  )

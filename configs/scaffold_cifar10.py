"""SCAFFOLD in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/scaffold_cifar10.py \\
      --workdir=runs/scaffold_cifar10

Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
No number of it is published there. Twice the traffic of FedAvg: 25 rounds
send what 50 of FedAvg do (--config.rounds=25).
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(arg, algorithm='scaffold')

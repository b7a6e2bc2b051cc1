"""FedAvg in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/fedavg_fedconcat.py \\
      --workdir=runs/fedavg_fedconcat

Published, after 50 rounds, for #C=2, #C=3, Dir(0.1), Dir(0.5):
53.6, 57.6, 53.0, 59.9.
Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(arg, algorithm='fedavg')

"""MOON in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/moon_cifar10.py \\
      --workdir=runs/moon_cifar10

Published, after 50 rounds, for #C=2, #C=3, Dir(0.1), Dir(0.5):
53.4, 58.6, 53.1, 61.2.
Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
The paper does not state its mu; the default is 1.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(arg, algorithm='moon')

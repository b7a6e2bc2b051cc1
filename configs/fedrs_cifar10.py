"""FedRS in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/fedrs_cifar10.py \\
      --workdir=runs/fedrs_cifar10

Published, after 50 rounds, for #C=2, #C=3, Dir(0.1), Dir(0.5):
53.8, 59.1, 54.8, 61.5.
Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
The paper does not state its alpha; the default is 0.5.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(arg, algorithm='fedrs')

"""FedLC in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/fedlc_cifar10.py \\
      --workdir=runs/fedlc_cifar10

Published, after 50 rounds, for #C=2, #C=3, Dir(0.1), Dir(0.5):
49.8, 58.1, 53.7, 61.5.
Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
The paper does not state its tau; the default is 1.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(arg, algorithm='fedlc')

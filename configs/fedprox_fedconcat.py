"""FedProx in FedConcat's setting for CIFAR-10 (Table 1), 40 clients.

  python experiments/main.py --config=configs/fedprox_fedconcat.py \\
      --workdir=runs/fedprox_fedconcat

Published, after 50 rounds, for #C=2, #C=3, Dir(0.1), Dir(0.5):
53.1, 57.4, 52.8, 59.9.
Dir: --config.partition=dirichlet_capped --config.dirichlet_beta=0.1.
"""

from configs import common


def get_config(arg=''):
  return common.fedconcat(
    arg,
    algorithm='fedprox',
    hp={'mu': 0.01},  # the paper's is not known; NIID-Bench tries 0.001 to 1
  )

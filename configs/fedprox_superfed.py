"""FedProx and FedProx-LU in SuperFed's setting for CIFAR-10.

  python experiments/main.py --config=configs/fedprox_superfed.py \\
      --workdir=runs/fedprox_superfed

Published, on the global test set after 200 rounds: 45.17 top-1, 89.22 top-5.
FedProx-LU is the view `local_update`, in which the distance stays.
"""

from configs import common


def get_config(arg=''):
  return common.superfed(
    arg,
    algorithm='fedprox',
    hp={'mu': 0.01, 'distance': 'norm'},  # not squared, as in its public code
    views=('initial', 'local_update'),
    finetune={'epochs': (1,), 'learning_rate': 0.01, 'batch_size': 20},
  )

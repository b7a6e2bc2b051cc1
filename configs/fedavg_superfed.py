"""FedAvg and FedAvg-LU in SuperFed's setting for CIFAR-10.

  python experiments/main.py --config=configs/fedavg_superfed.py \\
      --workdir=runs/fedavg_superfed

Published, on the global test set after 200 rounds: 47.09 top-1, 89.37 top-5.
FedAvg-LU is the view `local_update`: an epoch on the client's own images.
"""

from configs import common


def get_config(arg=''):
  return common.superfed(
    arg,
    algorithm='fedavg',
    views=('initial', 'local_update'),
    finetune={'epochs': (1,), 'learning_rate': 0.01, 'batch_size': 20},
  )

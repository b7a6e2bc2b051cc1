"""FedBABU on CIFAR-100 with MobileNet (FedBABU paper, Tables 1, 3 and 5).

  python experiments/main.py --config=configs/fedbabu_cifar100.py \\
      --workdir=runs/fedbabu_cifar100

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 18.50 +- 7.82 initial, 66.32 +- 7.02 personalised. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedbabu', 'cifar100')

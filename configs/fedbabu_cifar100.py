"""FedBABU on CIFAR-100 with MobileNet (FedBABU paper, Tables 1, 3 and 5).

  python experiments/main.py --config=configs/fedbabu_cifar100.py \\
      --workdir=runs/fedbabu_cifar100

Published (fedbabu/3, initial): 18.50 +- 7.82
Published (fedbabu/5, personalised): 66.32 +- 7.02

with 10 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedbabu', 'cifar100')

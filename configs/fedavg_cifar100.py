"""FedAvg on CIFAR-100 with MobileNet (FedBABU paper, Tables 1, 3 and 5).

  python experiments/main.py --config=configs/fedavg_cifar100.py \\
      --workdir=runs/fedavg_cifar100

Published (fedbabu/3, initial): 14.40 +- 5.64
Published (fedbabu/5, personalised): 62.67 +- 6.52

with 10 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedavg', 'cifar100')

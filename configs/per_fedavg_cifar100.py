"""Per-FedAvg on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/per_fedavg_cifar100.py \\
      --workdir=runs/per_fedavg_cifar100

Published (fedbabu/5, personalised): 9.17 +- 6.95

with 10 shards a client, f = 0.1 and tau = 10, mean and std, after one step on
half of a client's tests, on the other half. Wall time: hours on 2 CPU
cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'per_fedavg', 'cifar100')

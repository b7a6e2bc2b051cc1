"""Ditto on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/ditto_cifar100.py \\
      --workdir=runs/ditto_cifar100

trains Ditto as its paper has it. The printed number is that of the public code
of FedBABU, which averages the models pulled and evaluates nine clients of ten
by the last global model but one:

  python experiments/main.py --config=configs/ditto_cifar100.py \\
      --config.hp.protocol=released --workdir=runs/ditto_cifar100_released

Published (fedbabu/5, personalised): 14.24 +- 15.67

with 10 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'ditto', 'cifar100')

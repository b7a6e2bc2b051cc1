"""FedProx on CIFAR-100 with MobileNet (FedBABU paper, Tables 7 and 22).

  python experiments/main.py --config=configs/fedprox_cifar100.py \\
      --workdir=runs/fedprox_cifar100

Published (fedbabu/7, initial): 13.62 +- 7.73
  15.66 +- 8.29  --config.hp.trainable=body
Published (fedbabu/7, personalised): 43.48 +- 9.32
  67.15 +- 7.10  --config.hp.trainable=body

with 10 shards a client, f = 0.1 and tau = 10, mean and std; trainable=body is
FedProx + FedBABU. Settings that are not stated must have differed: mu = 0.01
alone gives nearly FedAvg's numbers, see fedavg_cifar100.py. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedprox', 'cifar100')

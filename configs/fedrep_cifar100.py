"""FedRep on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/fedrep_cifar100.py \\
      --workdir=runs/fedrep_cifar100

trains FedRep as its paper has it. The printed number is most likely that of the
public code of FedBABU, with as many head epochs before the test as in a round:

  python experiments/main.py --config=configs/fedrep_cifar100.py \\
      --config.hp.protocol=released --workdir=runs/fedrep_cifar100_released

Published (fedbabu/5, personalised): 34.30 +- 7.84

with 10 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: hours on
2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedrep', 'cifar100')

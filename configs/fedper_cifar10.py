"""FedPer on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/fedper_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedper_s5

trains FedPer as its paper has it. The printed number is most likely that of the
public code of FedBABU, which throws heads away after every round:

  python experiments/main.py --config=configs/fedper_cifar10.py \\
      --config.shards_per_client=5 --config.hp.protocol=released \\
      --workdir=runs/fedper_s5_released

Published (fedbabu/13, personalised): 74.92 +- 8.32

with 5 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: 18 to
95 minutes on 2 CPU cores, alone and beside other work.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedper', 'cifar10')

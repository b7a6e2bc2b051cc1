"""FedAvg on CIFAR-10 with the 4convNet (FedBABU paper, Tables 12 and 13).

  python experiments/main.py --config=configs/fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedavg_s5

Published (fedbabu/12, initial): 46.32 +- 10.52
Published (fedbabu/13, personalised): 74.29 +- 8.29

with 5 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: about
35 minutes on 2 CPU cores.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedavg', 'cifar10')

"""FedBABU on CIFAR-10 with the 4convNet (FedBABU paper, Tables 12 and 13).

  python experiments/main.py --config=configs/fedbabu_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedbabu_s5

Published (fedbabu/12, initial): 55.55 +- 9.90
Published (fedbabu/13, personalised): 80.99 +- 7.64

with 5 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: about
35 minutes on 2 CPU cores.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedbabu', 'cifar10')

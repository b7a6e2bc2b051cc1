"""Ditto on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/ditto_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/ditto_s5

trains Ditto as its paper has it. The printed number is that of the public code
of FedBABU, which averages the models pulled and evaluates nine clients of ten
by the last global model but one:

  python experiments/main.py --config=configs/ditto_cifar10.py \\
      --config.shards_per_client=5 --config.hp.protocol=released \\
      --workdir=runs/ditto_s5_released

Published (fedbabu/13, personalised): 58.66 +- 12.51

with 5 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: about
35 minutes on 2 CPU cores.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'ditto', 'cifar10')

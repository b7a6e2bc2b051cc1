"""FedRep on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/fedrep_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedrep_s5

trains FedRep as its paper has it. The printed number is most likely that of the
public code of FedBABU, with as many head epochs before the test as in a round:

  python experiments/main.py --config=configs/fedrep_cifar10.py \\
      --config.shards_per_client=5 --config.hp.protocol=released \\
      --workdir=runs/fedrep_s5_released

Published (fedbabu/13, personalised): 68.71 +- 10.47

with 5 shards a client, f = 0.1 and tau = 10, mean and std. Wall time: 20 to
51 minutes on 2 CPU cores, alone and beside other work.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedrep', 'cifar10')

"""FedRep on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/fedrep_cifar100.py \\
      --workdir=runs/fedrep_cifar100

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 34.30 +- 7.84 personalised; most likely with as many head epochs before
the test as in a round, as --config.hp.protocol=released does. Wall time: hours
on 2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedrep', 'cifar100')

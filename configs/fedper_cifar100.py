"""FedPer on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/fedper_cifar100.py \\
      --workdir=runs/fedper_cifar100

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 59.50 +- 7.33 personalised; most likely with heads that are thrown away
after every round, as --config.hp.protocol=released does. Wall time: hours on 2
CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedper', 'cifar100')

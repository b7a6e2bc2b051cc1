"""Ditto on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/ditto_cifar100.py \\
      --workdir=runs/ditto_cifar100

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 14.24 +- 15.67 personalised. That is the public code, which averages
the models pulled and evaluates nine clients of ten by the last global model but
one: add --config.hp.protocol=released. The default is Ditto as its paper has
it. Wall time: hours on 2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'ditto', 'cifar100')

"""Ditto on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/ditto_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/ditto_s5

Published for shards_per_client=5, client_fraction=0.1, local_epochs=10, mean
and std: 58.66 +- 12.51 personalised. That is the public code, which averages
the models pulled and evaluates nine clients of ten by the last global model but
one: add --config.hp.protocol=released. The default is Ditto as its paper has
it. Wall time: about 70 minutes on 2 CPU cores (twice FedAvg's; not measured).
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'ditto', 'cifar10')

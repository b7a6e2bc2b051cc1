"""Per-FedAvg on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/per_fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/per_fedavg_s5

Published for shards_per_client=5, client_fraction=0.1, local_epochs=10, mean
and std: 47.48 +- 13.76 after one step on half of a client's tests, on the other
half. Wall time: about 20 minutes on 2 CPU cores (40 gradients where FedAvg has
100; not measured).
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'per_fedavg', 'cifar10')

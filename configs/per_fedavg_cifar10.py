"""Per-FedAvg on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/per_fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/per_fedavg_s5

Published (fedbabu/13, personalised): 47.48 +- 13.76

with 5 shards a client, f = 0.1 and tau = 10, mean and std, after one step on
half of a client's tests, on the other half. Wall time: about 16 minutes on
2 CPU cores (40 gradients where FedAvg has 100).
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'per_fedavg', 'cifar10')

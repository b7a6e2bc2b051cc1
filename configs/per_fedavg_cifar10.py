"""Per-FedAvg on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/per_fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/per_fedavg_s5

Published for shards_per_client=5, client_fraction=0.1, local_epochs=10, mean
and std: 47.48 +- 13.76 after one step on half of a client's tests, on the other
half. Wall time: about 20 minutes on 2 CPU cores (40 gradients where FedAvg has
100; not measured).
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='per_fedavg',
    dataset='cifar10',
    model='convnet4',
    shards_per_client=10,
    adapt_on='test_half',  # as in the paper's tables; its stds show 50 tests
    views=('initial', 'adapted'),
  )

"""LG-FedAvg on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/lg_fedavg_cifar100.py \\
      --workdir=runs/lg_fedavg

trains FedAvg first: total_epochs are those of its rounds (320, 80 or 32 for
local_epochs 1, 4 or 10), and a quarter of its rounds follow. With the run of a
FedAvg config of the same settings and seed only these are trained:

  python experiments/main.py --config=configs/lg_fedavg_cifar100.py \\
      --config.init_from=runs/fedavg --config.hp.train_fedavg=False \\
      --workdir=runs/lg_fedavg

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 25.04 +- 12.02, without fine-tuning, of every client the best round on
the TEST set (see result.json, test_best/initial/each) with a head averaged once
more. Wall time: not measured; that of FedAvg and a quarter of it.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'lg_fedavg', 'cifar100')

"""LG-FedAvg on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/lg_fedavg_cifar100.py \\
      --workdir=runs/lg_fedavg_cifar100

trains FedAvg first: total_epochs are those of its rounds (320, 80 or 32 for
local_epochs 1, 4 or 10), and a quarter of its rounds follow. The printed number
began with FedAvg's run, of the same settings and seed:

  python experiments/main.py --config=configs/fedavg_cifar100.py \\
      --workdir=runs/fedavg_cifar100
  python experiments/main.py --config=configs/lg_fedavg_cifar100.py \\
      --config.init_from=runs/fedavg_cifar100 --config.hp.train_fedavg=False \\
      --config.hp.protocol=released --workdir=runs/lg_fedavg_cifar100_after

Published (fedbabu/5, personalised): 25.04 +- 12.02

with 10 shards a client, f = 0.1 and tau = 10, mean and std, without
fine-tuning, of every client the model of its best round on the TEST set, with
the mean head of those models (result.json, test_best/initial/finished). Wall
time: not measured; that of FedAvg and a quarter of it.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'lg_fedavg', 'cifar100')

"""LG-FedAvg on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/lg_fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/lg_fedavg_s5

trains FedAvg first: total_epochs are those of its rounds (320, 80 or 32 for
local_epochs 1, 4 or 10), and a quarter of its rounds follow. The printed number
began with FedAvg's run, of the same settings and seed:

  python experiments/main.py --config=configs/fedavg_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedavg_s5
  python experiments/main.py --config=configs/lg_fedavg_cifar10.py \\
      --config.shards_per_client=5 --config.init_from=runs/fedavg_s5 \\
      --config.hp.train_fedavg=False --config.hp.protocol=released \\
      --workdir=runs/lg_fedavg_s5_after

Published (fedbabu/13, personalised): 55.19 +- 13.91

with 5 shards a client, f = 0.1 and tau = 10, mean and std, without
fine-tuning, of every client the model of its best round on the TEST set, with
the mean head of those models (result.json, test_best/initial/finished). Wall
time: 43 minutes on 2 CPU cores after FedAvg's, beside other work.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'lg_fedavg', 'cifar10')

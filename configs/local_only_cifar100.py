"""Local-only on CIFAR-100 with MobileNet (FedBABU paper, Table 5).

  python experiments/main.py --config=configs/local_only_cifar100.py \\
      --workdir=runs/local_only_cifar100

Published (fedbabu/5, personalised): 61.52 +- 7.22
  28.02 +- 4.01   --config.shards_per_client=50
  20.60 +- 3.15   --config.shards_per_client=100

mean and std, of each client's best epoch on the TEST set, which result.json has
under test_best/personal/each. The run prints the last epoch.
Memory: 100 models with their momenta, 2.6 GB, in each of two checkpoints, too.
Wall time: days on 2 CPU cores (not run there); not measured on a GPU.
"""

from configs import methods

CHANGES = {'checkpoint_every': 40}  # one takes 2.6 GB


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'local_only', 'cifar100', **CHANGES)

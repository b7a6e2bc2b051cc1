"""Local-only on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/local_only_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/local_only_s5

Published (fedbabu/13, personalised): 68.79 +- 13.38
  55.40 +- 11.78  --config.shards_per_client=10
  90.85 +- 9.10   --config.shards_per_client=2

mean and std, of each client's best epoch on the TEST set, which result.json has
under test_best/personal/each. The run prints the last epoch.
Wall time: 1 to 2 hours on 2 CPU cores, five times the images of FedAvg.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'local_only', 'cifar10')

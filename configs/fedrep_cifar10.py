"""FedRep on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/fedrep_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedrep_s5

Published for shards_per_client=5, client_fraction=0.1, local_epochs=10, mean
and std: 68.71 +- 10.47 personalised; most likely with as many head epochs
before the test as in a round, as --config.hp.protocol=released does. Wall time:
not measured; that of FedAvg is 35 minutes on 2 CPU cores.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedrep', 'cifar10')

"""FedProx on CIFAR-10 with the 4convNet, as in the FedBABU paper's Table 13.

  python experiments/main.py --config=configs/fedprox_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/fedprox_s5

No number of FedProx on CIFAR-10 is published there. With mu = 0.01 expect
nearly FedAvg's, see fedavg_cifar10.py.
FedProx + FedBABU: --config.hp.trainable=body.
Wall time: not measured; that of FedAvg is 35 minutes on 2 CPU cores.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedprox', 'cifar10')

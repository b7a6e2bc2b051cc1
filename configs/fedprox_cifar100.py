"""FedProx on CIFAR-100 with MobileNet (FedBABU paper, Tables 7 and 22).

  python experiments/main.py --config=configs/fedprox_cifar100.py \\
      --workdir=runs/fedprox_cifar100

Published for shards_per_client=10, client_fraction=0.1, local_epochs=10, mean
and std: 13.62 +- 7.73 initial, 43.48 +- 9.32 personalised; FedProx + FedBABU
(--config.hp.trainable=body): 15.66 +- 8.29 and 67.15 +- 7.10. Settings that are
not stated must have differed: mu = 0.01 alone gives nearly FedAvg's numbers,
14.40 +- 5.64 and 62.67 +- 6.52. Wall time: hours on 2 CPU cores (not run
there); not measured on a GPU.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedprox', 'cifar100')

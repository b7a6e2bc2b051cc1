"""Centralised training on CIFAR-10, 4convNet (FedBABU paper, Figs 4 and 5).

  python experiments/main.py --config=configs/centralized_cifar10.py \\
      --config.hp.trainable=body --workdir=runs/centralized_body

The figures have curves, no numbers: the line initial/accuracy of each epoch.
Wall time: not measured; 8 million images, five times those of the FedAvg run.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'centralized', 'cifar10')

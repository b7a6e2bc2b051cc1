"""FedBABU paper, Figure 8: what is trained centrally, CIFAR-100, ResNet50.

  python experiments/reproduce.py --table=fedbabu/fig8

Test accuracy by epoch of 160, with all, the body, or the head trained; the rest
stays as it began.

Differs from the public code: BatchNorm uses the statistics of the batch, where
that keeps running ones for this network.
"""

from configs.tables.fedbabu_fig2 import runs_of_parts
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig8',
    'Full, body and head training, CIFAR-100, ResNet50',
    runs_of_parts('centralized_cifar100', {'model': 'resnet50'}),
    what='training',
    options={},
  )

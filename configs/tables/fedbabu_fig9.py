"""FedBABU paper, Figure 9: how a resting head begins, CIFAR-100, ResNet50.

  python experiments/reproduce.py --table=fedbabu/fig9

Test accuracy by epoch of 160 centralised ones in which only the body is
trained; the legend has the mean cosine between the rows of the head.

Differs from the public code: BatchNorm uses the statistics of the batch, where
that keeps running ones for this network.
"""

from configs.tables.fedbabu_fig3 import runs_of_heads
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig9',
    'Body training under six heads, CIFAR-100, ResNet50',
    runs_of_heads('centralized_cifar100', {'model': 'resnet50'}),
    what='training',
    options={},
  )

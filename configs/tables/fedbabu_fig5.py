"""FedBABU paper, Figure 5: how a resting head begins, CIFAR-10, 4convNet.

  python experiments/reproduce.py --table=fedbabu/fig5

Test accuracy by epoch of 160 centralised ones in which only the body is
trained; the legend has the mean cosine between the rows of the head.
"""

from configs.tables.fedbabu_fig3 import runs_of_heads
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig5',
    'Body training under six heads, CIFAR-10, 4convNet',
    runs_of_heads('centralized_cifar10'),
    what='training',
    options={},
  )

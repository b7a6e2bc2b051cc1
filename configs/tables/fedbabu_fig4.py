"""FedBABU paper, Figure 4: what is trained centrally, CIFAR-10, 4convNet.

  python experiments/reproduce.py --table=fedbabu/fig4

Test accuracy by epoch of 160, with all, the body, or the head trained; the rest
stays as it began.
"""

from configs.tables.fedbabu_fig2 import runs_of_parts
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig4',
    'Full, body and head training, CIFAR-10, 4convNet',
    runs_of_parts('centralized_cifar10'),
    what='training',
    options={},
  )

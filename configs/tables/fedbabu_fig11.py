"""FedBABU paper, Figure 11: classes by client, Dirichlet with beta = 0.5.

  python experiments/reproduce.py --table=fedbabu/fig11

CIFAR-100, 100 clients: the division of Table 18. Nothing is trained. The
paper's own generator is not published.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure

DIVISION = {
  'partition': 'dirichlet',
  'dirichlet_beta': 0.5,
  'aggregation': 'examples',  # as in Table 18, whose run this is
}


def get_table():
  settings = common.load_config('fedbabu_cifar100')
  return Figure(
    'fedbabu/fig11',
    'Classes of 100 clients, Dirichlet with beta = 0.5',
    {'beta=0.5': common.replaced(settings, DIVISION)},
    what='partition',
    options={},
  )

"""FedBABU paper, Figure 10: classes by client, Dirichlet with beta = 1.0.

  python experiments/reproduce.py --table=fedbabu/fig10

CIFAR-100, 100 clients: the division of Table 18. Nothing is trained. The
paper's own generator is not published.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure

DIVISION = {
  'partition': 'dirichlet',
  'dirichlet_beta': 1.0,
  'aggregation': 'examples',  # as in Table 18, whose run this is
}


def get_table():
  settings = common.load_config('fedbabu_cifar100')
  return Figure(
    'fedbabu/fig10',
    'Classes of 100 clients, Dirichlet with beta = 1.0',
    {'beta=1.0': common.replaced(settings, DIVISION)},
    what='partition',
    options={},
  )

"""FedBABU paper, Table 18: clients by a Dirichlet distribution.

  python experiments/reproduce.py --table=fedbabu/18 \\
      --where dirichlet_beta=0.5

CIFAR-100, MobileNet, 100 clients of unequal sizes, f = 0.1, tau = 10. Varied:
beta, the method. Printed: accuracy after personalisation.

The protocols are those that made the print, where that can be told: FedPer,
FedRep and Ditto by hp.protocol='released', Per-FedAvg on halves of the tests,
LG-FedAvg after FedAvg's run and without fine-tuning, and of LG-FedAvg and of
Local-only each client's best round by its TEST accuracy.

Differs from the paper, as far as that can be told: how it draws the shares is
not published; clients weigh n_i / n, as its text has it (its code weighs them
equally, but was never seen with such clients).
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/18',
    'Eight methods on CIFAR-100, Dirichlet partition',
    rows=('dirichlet_beta',),
    columns=('algorithm',),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell."""
  division = {'partition': 'dirichlet', 'aggregation': 'examples'}
  beta = float(published.variant['dirichlet_beta'])
  return common.fedbabu_cell(published, {**division, 'dirichlet_beta': beta})

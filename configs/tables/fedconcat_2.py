"""FedConcat, Table 2: Table 1's CIFAR-10 with 100 and 200 clients.

  python experiments/reproduce.py --table=fedconcat/2 \\
      --where num_clients=100,partition=classes_2

Varied: clients, the partition, the method. Printed: accuracy of the server's
model on the whole test set, without a deviation. What is not stated, and ours,
is as in Table 1; that all clients are in each round is, too.
"""

from configs.tables import common
from configs.tables.fedconcat_1 import cell_of


def get_table():
  return common.table(
    'fedconcat/2',
    'Accuracy of the global model with 100 and 200 clients, CIFAR-10',
    rows=('num_clients', 'partition'),
    columns=('algorithm',),
    cell=cell_of,
  )

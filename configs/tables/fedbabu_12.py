"""FedBABU paper, Table 12: Table 3 on CIFAR-10.

  python experiments/reproduce.py --table=fedbabu/12 \\
      --where shards_per_client=5,local_epochs=10,client_fraction=0.1

4convNet, 100 clients. Varied: fraction f, local epochs tau, shards s, FedAvg or
FedBABU. Printed: accuracy before fine-tuning, with the head and by nearest
class means without it. All trainings are those of Table 13.

Differs from the paper: the nearest mean is that by Euclidean distance, as in
its public code; its text has cosine.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/12',
    'CIFAR-10 before fine-tuning, with and without the head',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('algorithm', 'metric'),
  )

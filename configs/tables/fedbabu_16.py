"""FedBABU paper, Table 16: ResNet18.

  python experiments/reproduce.py --table=fedbabu/16 \\
      --where shards_per_client=10,local_epochs=10

CIFAR-100, 100 clients, f = 0.1. Varied: local epochs tau, shards s, FedAvg or
FedBABU. Printed: before and after fine-tuning.

Differs from the public code: BatchNorm uses the statistics of the batch, as in
all other networks of the paper; the code keeps running ones for this one.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/16',
    'FedAvg and FedBABU on CIFAR-100 with ResNet18',
    rows=('shards_per_client', 'local_epochs'),
    columns=('metric', 'algorithm'),
  )

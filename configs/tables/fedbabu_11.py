"""FedBABU paper, Table 11: 500 clients.

  python experiments/reproduce.py --table=fedbabu/11 \\
      --where shards_per_client=10,local_epochs=10,client_fraction=0.1

CIFAR-100, MobileNet, 100 training images a client. Varied: fraction f, local
epochs tau, shards s, FedAvg or FedBABU. Printed: before and after fine-tuning.

With s = 50 and 100 the test blocks of a class do not suffice for all clients:
the number of a client's tests is random there, 20 in the mean.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/11',
    '500 clients, before and after fine-tuning',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('metric', 'algorithm'),
  )

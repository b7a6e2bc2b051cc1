"""FedBABU paper, Table 1: FedAvg under more local epochs and fewer clients.

  python experiments/reproduce.py --table=fedbabu/1 \\
      --where shards_per_client=10,local_epochs=10,client_fraction=0.1

CIFAR-100, MobileNet, 100 clients. Varied: fraction f, local epochs tau, shards
s. Printed: mean and deviation over clients before and after 5 epochs of
fine-tuning. All trainings are FedAvg's of Tables 3 and 5.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/1',
    'FedAvg on CIFAR-100 with MobileNet, before and after fine-tuning',
    rows=('client_fraction', 'local_epochs'),
    columns=('shards_per_client', 'metric'),
  )

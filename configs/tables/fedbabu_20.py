"""FedBABU paper, Table 20: classes that a client trains on, and others.

  python experiments/reproduce.py --table=fedbabu/20 \\
      --where shards_per_client=10,local_epochs=10,client_fraction=0.1

CIFAR-100, MobileNet, 100 clients. Varied: fraction f, local epochs tau, shards
s, FedAvg or FedBABU. Printed: accuracy on the tests whose class the client has
in training (ID) and on the others (OOD), before and after fine-tuning, with the
test set divided by itself into 100 shards a client. All trainings are those of
Table 5, evaluated on other tests.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/20',
    'Own and other classes, before and after fine-tuning',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('algorithm', 'metric'),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell; only the tests are others."""
  shards = int(published.variant['test_shards_per_client'])
  return common.fedbabu_cell(
    published,
    evaluation={
      'test_partition': 'independent',
      'test_shards_per_client': shards,
    },
  )

"""FedBABU paper, Table 25: twice the epochs, five numbers of shards.

  python experiments/reproduce.py --table=fedbabu/25 \\
      --where shards_per_client=10,local_epochs=10

CIFAR-100, MobileNet, 100 clients, f = 0.1, 640 epochs in all. Varied: local
epochs tau, shards s, the method. Printed: accuracy after personalisation.

The protocols are those that made the print, where that can be told: FedPer,
FedRep and Ditto by hp.protocol='released', Per-FedAvg on halves of the tests,
LG-FedAvg after FedAvg's run and without fine-tuning, and of LG-FedAvg and of
Local-only each client's best round by its TEST accuracy.

Differs from the paper: LG-FedAvg begins with FedAvg's last model (public code:
its best by TEST accuracy), and the heads of the clients' best rounds are not
averaged once more.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/25',
    'Seven methods on CIFAR-100, 640 epochs',
    rows=('shards_per_client', 'local_epochs'),
    columns=('algorithm',),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell."""
  epochs = int(published.variant['total_epochs'])
  return common.fedbabu_cell(published, {'total_epochs': epochs})

"""FedBABU paper, Table 13: eight methods on CIFAR-10.

  python experiments/reproduce.py --table=fedbabu/13 \\
      --where shards_per_client=5,local_epochs=10,client_fraction=0.1

4convNet, 100 clients. Varied: fraction f, local epochs tau, shards s, the
method. Printed: accuracy after personalisation; Local-only has neither f nor
tau, and stands beside every one.

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
    'fedbabu/13',
    'Eight methods on CIFAR-10 with the 4convNet, personalised',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('algorithm',),
  )

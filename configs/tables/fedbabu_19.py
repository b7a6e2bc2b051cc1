"""FedBABU paper, Table 19: EMNIST by classes.

  python experiments/reproduce.py --table=fedbabu/19 \\
      --where shards_per_client=6

62 classes, 3convNet, 1,488 clients of unequal sizes, f = 0.1, tau = 10. Varied:
shards s, the method. Printed: accuracy after personalisation.

The protocols are those that made the print, where that can be told: FedPer,
FedRep and Ditto by hp.protocol='released', Per-FedAvg on halves of the tests,
LG-FedAvg after FedAvg's run and without fine-tuning, and of LG-FedAvg and of
Local-only each client's best round by its TEST accuracy.

Differs from the paper: the usual split of 697,932 and 116,323 images (printed:
731,668 and 82,587); no augmentation; clients weigh n_i / n, as its text has it.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/19',
    'Eight methods on EMNIST with the 3convNet',
    rows=('shards_per_client',),
    columns=('algorithm',),
  )

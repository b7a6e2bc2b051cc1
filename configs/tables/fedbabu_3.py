"""FedBABU paper, Table 3: with the head, and by nearest templates without it.

  python experiments/reproduce.py --table=fedbabu/3 \\
      --where shards_per_client=10,local_epochs=10,client_fraction=0.1

CIFAR-100, MobileNet, 100 clients. Varied: fraction f, local epochs tau, shards
s, FedAvg or FedBABU. Printed: accuracy of the global model on each client's
tests, and that of its features with class means in the place of the head.
Nothing is fine-tuned. All trainings are those of Table 5.

Differs from the paper: the nearest mean is that by Euclidean distance, as in
its public code; its text has cosine.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/3',
    'Accuracy before fine-tuning, with and without the head',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('algorithm', 'metric'),
  )

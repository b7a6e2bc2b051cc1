"""FedBABU paper, Table 22: FedProx, and FedProx with a resting head, f = 1.0.

  python experiments/reproduce.py --table=fedbabu/22 \\
      --where shards_per_client=10,local_epochs=10

CIFAR-100, MobileNet, 100 clients, mu = 0.01; Table 7 is the same with f = 0.1.
Varied: local epochs tau, shards s. Printed: before and after 5 epochs of
fine-tuning, which is without the proximal term.

No run with mu = 0.01 alone can be expected to give the printed numbers: there
the term is far too small for the distance from FedAvg that is printed.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/22',
    'FedProx and FedProx with FedBABU, f = 1.0',
    rows=('algorithm', 'local_epochs'),
    columns=('shards_per_client', 'metric'),
  )

"""FedBABU paper, Table 10: momentum.

  python experiments/reproduce.py --table=fedbabu/10 \\
      --where shards_per_client=10,momentum=0.5

CIFAR-100, MobileNet, 100 clients, f = 0.1, tau = 10. Varied: momentum, the same
in training and in fine-tuning, shards s, FedAvg or FedBABU. Printed: before and
after fine-tuning. Momentum 0.9 is that of Table 5; with 0.99 FedAvg diverges in
print for s = 50 and 10.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/10',
    'Momentum of training and of fine-tuning',
    rows=('metric', 'momentum'),
    columns=('shards_per_client', 'algorithm'),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell."""
  momentum = float(published.variant['momentum'])
  return common.fedbabu_cell(
    published, {'momentum': momentum, 'finetune.momentum': momentum}
  )

"""FedBABU paper, Table 23: a head that learns more slowly than the body.

  python experiments/reproduce.py --table=fedbabu/23 \\
      --where shards_per_client=10

CIFAR-100, MobileNet, 100 clients, f = 0.1, tau = 10. Varied: the learning rate
of the head as a share of the body's, shards s. Printed: accuracy by nearest
class means, without the head. Ratio 1 is FedAvg and ratio 0 FedBABU of Table 3.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/23',
    'Learning rate of the head, accuracy without the head',
    rows=('shards_per_client',),
    columns=('head_lr_ratio',),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell; the ratios 0 and 1 are plain methods."""
  ratio = float(published.variant['head_lr_ratio'])
  changes = {} if ratio in (0, 1) else {'hp.head_lr_ratio': ratio}
  return common.fedbabu_cell(published, changes)

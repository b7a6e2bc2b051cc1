"""FedBABU paper, Table 2: FedAvg whose server has data of its own.

  python experiments/reproduce.py --table=fedbabu/2 \\
      --where shards_per_client=10,share=0.05

CIFAR-100, MobileNet, 100 clients, f = 0.1, tau = 10. Varied: the share p of the
clients' training images that the server has, too, what it trains on them for an
epoch after each round (all, or the body), shards s. Printed: before and after
fine-tuning. p = 0 is FedAvg of Table 1.

Differs from the paper: whether its column "full" was made so is read off an
older version of the public code.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/2',
    'FedAvg with data shared with the server',
    rows=('share', 'share_part'),
    columns=('shards_per_client', 'metric'),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell; p = 0 leaves the config as it is."""
  share = float(published.variant['share'])
  if not share:
    return common.fedbabu_cell(published)
  part = published.variant['share_part']
  return common.fedbabu_cell(
    published, {'server_data_fraction': share, 'server_trainable': part}
  )

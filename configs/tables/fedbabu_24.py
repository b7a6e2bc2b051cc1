"""FedBABU paper, Table 24: FedBABU with a head whose rows are alike.

  python experiments/reproduce.py --table=fedbabu/24 \\
      --where shards_per_client=10,local_epochs=10,head=similar

CIFAR-100, MobileNet, 100 clients, f = 0.1. Varied: the head that is never
trained in the rounds, by chance nearly orthogonal (FedBABU as everywhere) or
with rows of cosine 0.997; local epochs tau, shards s. Printed: before and after
fine-tuning.

The bias of the latter is zero, as in the paper's centralised runs with such
heads; which it is here is not stated.
"""

from configs.tables import common


def get_table():
  return common.table(
    'fedbabu/24',
    'FedBABU with a nearly orthogonal head or similar rows',
    rows=('head', 'local_epochs'),
    columns=('shards_per_client', 'metric'),
    cell=cell_of,
  )


SIMILAR = {'head_init': 'similar', 'head_bias': 'zero'}


def cell_of(published):
  """Return the cell."""
  similar = published.variant['head'] == 'similar'
  return common.fedbabu_cell(published, SIMILAR if similar else {})

"""FedBABU paper, Table 21: FedBABU whose server has data of its own.

  python experiments/reproduce.py --table=fedbabu/21 \\
      --where shards_per_client=10,share=0.05

Table 2 for FedBABU: the server trains the body on a share p of the clients'
training images after each round. p = 0 is FedBABU of Table 5.
"""

from configs.tables import common
from configs.tables.fedbabu_2 import cell_of


def get_table():
  return common.table(
    'fedbabu/21',
    'FedBABU with data shared with the server',
    rows=('share',),
    columns=('shards_per_client', 'metric'),
    cell=cell_of,
  )

"""FedBABU paper, Table 15: which layers clients train, after fine-tuning.

  python experiments/reproduce.py --table=fedbabu/15 \\
      --where shards_per_client=5,local_epochs=10,client_fraction=0.1

Table 14 after 5 epochs of fine-tuning, in which all layers are trained. All
trainings are those of Table 14, and its word about Conv123 holds here, too.
"""

from configs.tables import common
from configs.tables.fedbabu_14 import cell_of


def get_table():
  return common.table(
    'fedbabu/15',
    'Accuracy by the layers that clients train, personalised',
    rows=('shards_per_client', 'client_fraction', 'local_epochs'),
    columns=('local_parts',),
    cell=cell_of,
  )

"""SuperFed (first version), Table 2: EMNIST and Tiny-ImageNet.

  python experiments/reproduce.py --table=superfed/2 \\
      --where dataset=emnist

Table 1 with clients of clusters of classes: 1,543 of EMNIST by classes, 15 in a
round, 100 rounds; 390 of Tiny-ImageNet, 11 in a round, 500 rounds. Mixing
begins after 0.4 of the rounds, which is known for MM alone.

Differs from the paper: EMNIST has 116,323 test images (printed: 82,587). Its
code drops the tests of partial batches and counts them as wrong; here all
count.
"""

from configs.tables import common
from configs.tables.superfed_1 import cell_of


def get_table():
  return common.table(
    'superfed/2',
    'Global model on EMNIST and Tiny-ImageNet, clusters of classes',
    rows=('algorithm',),
    columns=('dataset', 'metric'),
    cell=cell_of,
  )

"""FedBABU paper, Figure 13: own and other classes after every local epoch.

  python experiments/reproduce.py --table=fedbabu/fig13

CIFAR-100, MobileNet, f = 0.1, tau = 10: accuracy of the clients of a round on
all 10,000 tests, of the classes that they train on and of the others, for
FedAvg and FedBABU of Table 5 with 100, 50 and 10 shards. Their rounds are
played again.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig13',
    'Own and other classes after every local epoch',
    {
      f'{method}, s={shards}': common.replaced(
        common.load_config(f'{method}_cifar100'), {'shards_per_client': shards}
      )
      for shards in (100, 50, 10)
      for method in ('fedavg', 'fedbabu')
    },
    what='class_curves',
    options={},
  )

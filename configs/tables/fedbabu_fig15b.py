"""FedBABU paper, Figure 15: features of the global model, CIFAR-100.

  python experiments/reproduce.py --table=fedbabu/fig15b

MobileNet, s = 10, f = 0.1, tau = 10, FedAvg and FedBABU: t-SNE of the features
of its test images, one colour for each of the 20 coarse classes. The paper
states neither the split nor the perplexity.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig15b',
    'Features under FedAvg and FedBABU, CIFAR-100',
    {
      method: common.replaced(
        common.load_config(f'{method}_cifar100'), {'shards_per_client': 10}
      )
      for method in ('fedavg', 'fedbabu')
    },
    what='features',
    options={'colours': 'coarse'},
  )

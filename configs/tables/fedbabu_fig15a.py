"""FedBABU paper, Figure 15: features of the global model, CIFAR-10.

  python experiments/reproduce.py --table=fedbabu/fig15a

4convNet, s = 2, f = 0.1, tau = 10, FedAvg and FedBABU: t-SNE of the features of
its test images, one colour a class. The paper states neither the split nor the
perplexity.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig15a',
    'Features under FedAvg and FedBABU, CIFAR-10',
    {
      method: common.replaced(
        common.load_config(f'{method}_cifar10'), {'shards_per_client': 2}
      )
      for method in ('fedavg', 'fedbabu')
    },
    what='features',
    options={},
  )

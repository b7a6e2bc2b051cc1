"""FedBABU paper, Figure 12: how alike clients stay in fine-tuning, by layer.

  python experiments/reproduce.py --table=fedbabu/fig12

CIFAR-100, MobileNet, f = 0.1, tau = 10: cosine between the clients' weights of
a layer over 20 epochs of fine-tuning, for FedAvg and FedBABU of Table 5. Their
shards are not stated; 10 are ours.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig12',
    'Similarity of clients by layer while they fine-tune',
    {
      method: common.load_config(f'{method}_cifar100')
      for method in ('fedavg', 'fedbabu')
    },
    what='similarity',
    options={'epochs': 20},
  )

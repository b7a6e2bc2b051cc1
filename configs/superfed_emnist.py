"""SuperFed-MM on EMNIST by classes, 1,543 clients (SuperFed, first version).

  python experiments/main.py --config=configs/superfed_emnist.py \\
      --workdir=runs/superfed_emnist

Clients of one of five clusters of classes, 100 to 799 images each. Published,
on a global test set after 100 rounds: 73.53 (MM), 73.85 (LM) top-1, 97.15 and
97.28 top-5.
"""

from configs import common


def get_config(arg=''):
  return common.superfed(
    arg,
    algorithm='superfed',
    dataset='emnist/byclass',
    partition='semantic',
    num_clients=1543,
    class_families=(10, 26, 26),  # digits, upper and lower case
    client_fraction=0.01,
    rounds=100,
    views=(
      'initial',
      *(f'mix_{value / 10}' for value in range(11)),
    ),
  )

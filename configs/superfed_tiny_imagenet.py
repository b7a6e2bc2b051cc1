"""SuperFed-MM on Tiny-ImageNet, 390 clients (SuperFed, first version).

  python experiments/main.py --config=configs/superfed_tiny_imagenet.py \\
      --workdir=runs/superfed_tiny_imagenet

Clients of one of ten clusters of classes, 100 to 399 images each. Published,
on the global test set after 500 rounds: 9.09 (MM), 9.02 (LM) top-1, 23.75 and
25.10 top-5.
"""

from configs import common


def get_config(arg=''):
  return common.superfed(
    arg,
    algorithm='superfed',
    dataset='tiny_imagenet',
    partition='semantic',
    num_clients=390,
    class_clusters=10,
    max_client_size=400,
    client_fraction=0.03,
    rounds=500,
    views=(
      'initial',
      *(f'mix_{value / 10}' for value in range(11)),
    ),
  )

"""SuperFed-MM on CIFAR-100, two classes a client (SuperFed, first version).

  python experiments/main.py --config=configs/superfed_cifar100.py \\
      --workdir=runs/superfed_cifar100

As in the paper's text: 100 clients of 500 images; its script has 200 of five
classes (--config.num_clients=200 --config.shards_per_client=5). Published, on
the global test set after 300 rounds: 17.62 (MM), 18.17 (LM, hp.mixing=layer)
top-1, 43.36 and 43.85 top-5.
"""

from configs import common


def get_config(arg=''):
  return common.superfed(
    arg,
    algorithm='superfed',
    hp={'phase_start': 0.5},
    dataset='cifar100',
    rounds=300,
    views=(
      'initial',
      *(f'mix_{value / 10}' for value in range(11)),
    ),
  )

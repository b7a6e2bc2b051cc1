"""MOON on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/moon_digits.py --workdir=runs/x

20 clients with 2 shards each. Prints, mean and std: 37.7 +- 33.1 initial,
71.5 +- 25.9 finetuned; with --config.hp.mu=0 it is FedAvg. Under a minute on 2
CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.digits(arg, algorithm='moon')

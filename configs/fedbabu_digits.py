"""FedBABU on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/fedbabu_digits.py --workdir=runs/x

20 clients with 2 shards each.
"""

from configs import common


def get_config(arg=''):
  return common.digits(arg, algorithm='fedbabu')

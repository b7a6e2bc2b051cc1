"""APFL on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/apfl_digits.py --workdir=runs/x

20 clients with 2 shards each. The global model is FedAvg's. Prints, mean and
std: 45.0 +- 33.4 initial, 82.7 +- 28.3 personal. Under a minute on 2 CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.digits(
    arg,
    algorithm='apfl',
    views=('initial', 'personal'),
  )

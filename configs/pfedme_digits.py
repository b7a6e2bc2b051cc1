"""pFedMe on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/pfedme_digits.py --workdir=runs/x

20 clients with 2 shards each. Momentum is not used. Prints, mean and std:
76.5 +- 20.2 initial, 99.2 +- 2.0 personal. Under a minute on 2 CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.digits(
    arg,
    algorithm='pfedme',
    views=('initial', 'personal'),
  )

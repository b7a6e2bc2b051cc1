"""LG-FedAvg on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/lg_fedavg_digits.py \\
      --workdir=runs/x

20 clients with 2 shards each: 16 rounds of FedAvg, then 4 of LG-FedAvg.
"""

from configs import common


def get_config(arg=''):
  return common.digits(
    arg,
    algorithm='lg_fedavg',
    total_epochs=80,  # of FedAvg; a quarter as many follow
  )

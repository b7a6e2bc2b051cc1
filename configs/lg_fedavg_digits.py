"""LG-FedAvg on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/lg_fedavg_digits.py \\
      --workdir=runs/x

20 clients with 2 shards each: 16 rounds of FedAvg, then 4 of LG-FedAvg.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='lg_fedavg',
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    clients=20,
    shards=2,
    fraction=0.25,
    total_epochs=80,  # of FedAvg; a quarter as many follow
    local_epochs=5,
    batch_size=20,  # a client has about 72 images
    finetune={'batch_size': 20},
  )

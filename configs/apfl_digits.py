"""APFL on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/apfl_digits.py --workdir=runs/x

20 clients with 2 shards each. The global model is FedAvg's. Prints, mean and
std: 45.0 +- 33.4 initial, 82.7 +- 28.3 personal. Under a minute on 2 CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='apfl',
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    clients=20,
    shards=2,
    fraction=0.25,
    total_epochs=80,
    local_epochs=5,
    batch_size=20,  # a client has about 72 images
    finetune={'batch_size': 20},
    views=('initial', 'personal'),
  )

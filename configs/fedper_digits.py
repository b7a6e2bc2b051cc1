"""FedPer on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/fedper_digits.py --workdir=runs/x

20 clients with 2 shards each. It prints 99.2 +- 2.0 initial,
99.2 +- 2.0 personalised: with the own head, hardly anything is left to learn.
Wall time: under a minute on 2 CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='fedper',
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    clients=20,
    shards=2,
    fraction=0.25,
    total_epochs=80,
    local_epochs=5,
    batch_size=20,  # a client has about 72 images
    finetune={'batch_size': 20},
  )

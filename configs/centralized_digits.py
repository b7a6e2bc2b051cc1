"""Centralised training on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/centralized_digits.py \\
      --workdir=runs/x

One client holds all images; a round is an epoch.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='centralized',
    hp={'trainable': 'full'},  # or 'body', 'head'
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    partition='iid',
    test_partition='whole',
    head_bias='zero',
    num_clients=1,
    client_fraction=1.0,
    total_epochs=20,
    local_epochs=1,
    batch_size=32,
    learning_rate=0.05,
    weight_decay=5e-4,
    views=('initial',),
  )

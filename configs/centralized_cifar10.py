"""Centralised training on CIFAR-10, 4convNet (FedBABU paper, Figs 4 and 5).

  python experiments/main.py --config=configs/centralized_cifar10.py \\
      --config.hp.trainable=body --workdir=runs/centralized_body

The figures have curves, no numbers: the line initial/accuracy of each epoch.
Wall time: not measured; 8 million images, five times those of the FedAvg run.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='centralized',
    hp={'trainable': 'full'},  # or 'body', 'head'
    dataset='cifar10',
    model='convnet4',
    partition='iid',
    test_partition='whole',  # in the order of the file
    head_bias='zero',
    num_clients=1,
    client_fraction=1.0,
    total_epochs=160,
    local_epochs=1,
    batch_size=128,
    weight_decay=5e-4,
    views=('initial',),
    eval_every=1,
  )

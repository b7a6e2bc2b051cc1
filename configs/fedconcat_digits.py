"""FedConcat on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/fedconcat_digits.py \\
      --workdir=runs/x

20 clients with 2 classes each, 3 clusters. FedConcat-ID, which infers what
clients hold: --config.hp.distributions=inferred.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='fedconcat',
    hp={'clusters': 3, 'classifier_rounds': 60, 'noise_inputs': 1000},
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    partition='classes',
    num_clients=20,
    client_fraction=0.5,
    total_epochs=60,
    local_epochs=5,
    batch_size=20,  # a client has about 72 images
    lr_milestones=(),  # the classifier begins after the others' last round
    log_every=3,
    views=('initial',),
  )

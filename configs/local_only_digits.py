"""Local-only on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/local_only_digits.py \\
      --workdir=runs/x

20 clients with 2 shards each; a round is an epoch of all of them. Prints the
accuracy after the last; the best on the test set is in result.json.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='local_only',
    dataset='digits',
    model='convnet3',  # 8x8 pixels allow three poolings
    num_clients=20,
    shards_per_client=2,
    client_fraction=1.0,
    total_epochs=40,
    local_epochs=1,
    batch_size=10,
    views=('personal',),
    eval_views=('personal',),
    log_every=5,  # a dispatch costs as much as a round of so few images
    eval_every=5,
  )

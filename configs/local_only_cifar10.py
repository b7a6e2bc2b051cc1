"""Local-only on CIFAR-10 with the 4convNet (FedBABU paper, Table 13).

  python experiments/main.py --config=configs/local_only_cifar10.py \\
      --config.shards_per_client=5 --workdir=runs/local_only_s5

Published for shards_per_client=10, 5 and 2, mean and std: 55.40 +- 11.78, 68.79
+- 13.38 and 90.85 +- 9.10: each client's best epoch on the TEST set, which
result.json has under test_best/personal/each. The run prints the last epoch.
Not run: five times the images of the FedAvg run, in 25 times as many steps.
"""

from configs import common


def get_config(arg=''):
  return common.base(
    arg,
    algorithm='local_only',
    dataset='cifar10',
    model='convnet4',
    shards_per_client=10,
    client_fraction=1.0,
    total_epochs=160,
    local_epochs=1,  # evaluated after each, as the published number needs
    batch_size=10,  # the paper has none; the default of its public code
    views=('personal',),
    eval_views=('personal',),
    eval_every=1,
    checkpoint_every=20,
  )

"""SuPerFed-MM on scikit-learn's 8x8 digits: a first look, no download.

  python experiments/main.py --config=configs/superfed_digits.py \\
      --workdir=runs/x

SuPerFed-LM, a lambda for each layer, is --config.hp.mixing=layer. 20 clients
with 2 shards each; five take part in a round, and some never train their own
model in the ten rounds of personalisation. It prints, mean and std, with MM:
47.5 +- 27.8 initial, 84.7 +- 30.3 mix_0.5, 89.1 +- 24.7 mix_1.0; with LM: 43.9
+- 26.3, 90.2 +- 19.8, 83.0 +- 30.5. Wall time: under a minute on 2 CPU cores.
"""

from configs import common


def get_config(arg=''):
  return common.digits(
    arg,
    algorithm='superfed',
    views=('initial', 'mix_0.5', 'mix_1.0'),
  )

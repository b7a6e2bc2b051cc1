"""FedBABU paper, Figure 3: how a resting head begins, CIFAR-100, MobileNet.

  python experiments/reproduce.py --table=fedbabu/fig3

Test accuracy by epoch of 160 centralised ones in which only the body is
trained; the legend has the mean cosine between the rows of the head.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure

HEADS = (
  'xavier_uniform',
  'xavier_normal',
  'he_uniform',
  'he_normal',
  'orthogonal',
  'similar',
)


def get_table():
  return Figure(
    'fedbabu/fig3',
    'Body training under six heads, CIFAR-100, MobileNet',
    runs_of_heads('centralized_cifar100'),
    what='training',
    options={},
  )


def runs_of_heads(config, changes=None):
  """Return centralised runs of the body, each under another head."""
  body = {'hp.trainable': 'body', **(changes or {})}
  settings = common.replaced(common.load_config(config), body)
  return {
    head: common.replaced(settings, {'head_init': head}) for head in HEADS
  }

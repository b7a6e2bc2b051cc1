"""FedBABU paper, Figure 2: what is trained centrally, CIFAR-100, MobileNet.

  python experiments/reproduce.py --table=fedbabu/fig2

Test accuracy by epoch of 160, with all, the body, or the head trained; the rest
stays as it began.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Figure


def get_table():
  return Figure(
    'fedbabu/fig2',
    'Full, body and head training, CIFAR-100, MobileNet',
    runs_of_parts('centralized_cifar100'),
    what='training',
    options={},
  )


def runs_of_parts(config, changes=None):
  """Return three centralised runs, each of another part."""
  settings = common.replaced(common.load_config(config), changes or {})
  return {
    part: common.replaced(settings, {'hp.trainable': part})
    for part in ('full', 'body', 'head')
  }

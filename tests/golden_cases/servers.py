"""FedALA, and methods whose server does more than average."""

from functools import partial

import jax

from fedjax_pfl.core import trees
from golden_cases.inputs import losses_of
from golden_cases.methods import PERSONAL, check_method, check_with_term

FEDAMP = partial(
  check_with_term,
  name='fedamp',
  fields=('lam', 'alpha', 'sigma'),
  server=lambda server: {},
  kept=lambda client, up: {'cloud/{0}/{1}': client.cloud},
  views=PERSONAL,
)
FEDOPT = partial(
  check_method,
  name='fedopt',
  fields=('optimizer', 'learning_rate', 'beta_1', 'beta_2', 'tau'),
)


FEDALA = partial(
  check_method,
  name='fedala',
  fields=('learning_rate', 'threshold', 'percent'),
  kept=lambda client, up: {'mixture/{0}/{1}': client.mixture},
  views=PERSONAL,
  run=jax.jit,
)
FEDPAC = partial(
  check_method,
  name='fedpac',
  fields=('lam',),
  steps=lambda update: {'step_loss': losses_of(update.fits[-1])},
  trained=lambda update: trees.combine(update.upload.body, update.client),
  server=lambda server: {'global': server.params, 'means': server.means},
  kept=lambda head, up: {'head/{0}/{1}': head},
  views={'initial': 'initial'},
)
CHECKS = {
  'fedala': FEDALA,
  'fedpac': FEDPAC,
  'fedamp': FEDAMP,
  'fedopt': FEDOPT,
}

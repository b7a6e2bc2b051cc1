"""Methods whose server does more than average."""

from functools import partial

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
CHECKS = {'fedamp': FEDAMP, 'fedopt': FEDOPT}

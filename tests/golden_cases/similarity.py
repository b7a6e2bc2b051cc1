"""Methods whose server answers each client by itself: `respond`."""

from functools import partial

from golden_cases.methods import PERSONAL, check_with_term

FEDAMP = partial(
  check_with_term,
  name='fedamp',
  fields=('lam', 'alpha', 'sigma'),
  server=lambda server: {},
  kept=lambda client, up: {'cloud/{0}/{1}': client.cloud},
  views=PERSONAL,
)
CHECKS = {'fedamp': FEDAMP}

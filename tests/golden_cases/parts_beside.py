"""Methods with prototypes, two heads or conditions beside the model."""

from functools import partial

from golden_cases.methods import check_method

FEDPROTO = partial(
  check_method,
  name='fedproto',
  fields=('lam', 'protocol'),
  trained=lambda update: update.client.params,
  server=lambda server: {'means': server.means},
  kept=lambda client, up: {'up/{0}/{1}': getattr(up, 'means', None)},
  views={'personal': 'personal', 'prototypes': 'prototypes'},
)
CHECKS = {'fedproto': FEDPROTO}

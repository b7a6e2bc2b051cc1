"""Methods whose server mixes the models of clients by a graph."""

from functools import partial

from golden_cases.methods import check_method

PFEDGRAPH = partial(
  check_method,
  name='pfedgraph',
  fields=('lam', 'alpha', 'protocol'),
  server=lambda server: {},
  kept=lambda client, up: {
    'mixed/{0}/{1}': client.params,
    'direction/{0}/{1}': client.direction,
  },
  views={'personal': 'personal'},
)
CHECKS = {'pfedgraph': PFEDGRAPH}

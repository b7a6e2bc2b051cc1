"""Methods with prototypes, a second head or conditions beside the model."""

import math
from functools import partial
from unittest import mock

import jax.numpy as jnp

from fedjax_pfl.algorithms import load
from fedjax_pfl.core import trees
from golden_cases.inputs import losses_of, steps_of
from golden_cases.methods import HERE, check_method
from golden_cases.rounds import (
  Replay,
  beginning_with,
  build,
  build_stages,
  replay,
  run_rounds,
  sent,
)


def check_feddbe(case):
  """All clients give the mean first; the rounds begin with it."""
  first, last = build_stages(case, 'feddbe')
  everyone = [[*range(case['clients'])]]
  (measured,) = run_rounds(first.algorithm, case.data()[0], everyone)
  case.check('mean', measured.server.mean)
  begun = measured.server._replace(round=jnp.array(0))
  how = Replay(
    steps=lambda update: {
      'step_loss': losses_of(update.fits[0]),
      'running': update.fits[0][0].running,
    },
    trained=lambda update: update.upload,
    kept=lambda client, up: {'shift/{0}/{1}': client.shift},
  )
  replay(case, last.algorithm._replace(init_server=lambda key: begun), how)


def check_gpfl(case):
  algorithm = build(case, 'gpfl')
  body = trees.invert(case.task().is_head)

  def extras(of):
    return {'embeddings': of.embeddings, **of.valve}

  how = Replay(
    trained=lambda update: trees.combine(
      update.upload.params, update.client.head
    ),
    server=lambda server: {
      'global': trees.select(server.params, body),
      'extra_global': extras(server),
    },
    steps=lambda update: {
      'step_loss': losses_of(update.fits[0]),
      'extra': extras(update.upload),
    },
  )
  given = {'embeddings': 'init_extra/embeddings', 'valve': 'init_extra/'}
  replay(case, beginning_with(case, algorithm, **given), how)


def check_fedcp(case):
  """The noise is a given one; initial gate and contexts are the authors'."""
  algorithm = build(case, 'fedcp')
  contexts = iter(jnp.asarray(case.given('init_context')[0]))

  def init_client(server, data, rng):
    client = algorithm.init_client(server, data, rng)
    return client._replace(context=next(contexts))

  given = beginning_with(case, algorithm, gate='init_gate/')
  how = Replay(
    trained=lambda update: trees.combine(
      update.client.personal_head, update.upload.params
    ),
    server=lambda server: {'global': server.params, 'gate': server.gate},
    kept=lambda client, up: sent(up, 'gate', 'gate'),
  )

  def noise(key, shape):
    return jnp.sin(jnp.arange(math.prod(shape))).reshape(shape)

  with mock.patch('fedjax_pfl.algorithms.fedcp.gumbel', noise):
    replay(case, given._replace(init_client=init_client), how)


def means_sent(up):
  """Return c_ik [Y, F] of an upload; of a trained model there are none."""
  if isinstance(up, load('fedproto').Up):
    return up.sums / jnp.maximum(up.weights, 1)[:, None]


FEDPROTO = partial(
  check_method,
  name='fedproto',
  trained=lambda update: update.client.params,
  server=lambda server: {'means': server.means * server.present[:, None]},
  kept=lambda client, up: {'up/{0}/{1}': means_sent(up)},
)
FEDROD = partial(
  check_method,
  name='fedrod',
  steps=lambda update: {
    f'step_{name}': steps_of(
      update.fits[0], update.fits[0][1].reports[f'{name}_losses']
    )
    for name in ('balanced', 'personal')
  },
  trained=lambda update: update.upload,
  kept=lambda client, up: {f'head/{HERE}': client.personal_head},
)
FEDAS = partial(
  check_method,
  name='fedas',
  steps=lambda update: {
    'align_loss': losses_of(update.fits[0]),
    'step_loss': losses_of(update.fits[1]),
    'trace': update.upload.trace,
  },
  trained=lambda update: update.client,
)
PFEDGRAPH = partial(
  check_method,
  name='pfedgraph',
  server=lambda server: {},
  kept=lambda client, up: {
    'mixed/{0}/{1}': client.params,
    'direction/{0}/{1}': client.direction,
  },
)
CHECKS = {
  'fedas': FEDAS,
  'fedproto': FEDPROTO,
  'fedrod': FEDROD,
  'feddbe': check_feddbe,
  'gpfl': check_gpfl,
  'fedcp': check_fedcp,
  'pfedgraph': PFEDGRAPH,
}

"""Methods of which no message has the shape of a client's model."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import load
from golden_cases.inputs import steps_of
from golden_cases.methods import check_method
from golden_cases.rounds import Replay, beginning_with, build, replay, sent


def check_fedtgp(case):
  algorithm = build(case, 'fedtgp')
  how = Replay(
    trained=lambda update: update.client.params,
    server=lambda server: {
      'server': server.trained,
      'prototypes_sent': load('fedtgp').prototypes(server.trained),
    },
    kept=lambda client, up: sent(up, 'means'),
  )
  replay(case, beginning_with(case, algorithm, trained='init_server/'), how)


FEDGH = partial(
  check_method,
  name='fedgh',
  server=lambda server: {'head': server.head},
  kept=lambda client, up: sent(up, 'means'),
)
FD = partial(
  check_method,
  name='fd',
  trained=lambda update: update.client.params,
  server=lambda server: {},
  kept=lambda client, up: sent(up, 'outputs'),
)


def check_pair(case, name, how):
  """Check a shared model, which begins as one of the inputs, beside an own."""
  algorithm = build(case, name)
  server = algorithm.init_server(jax.random.key(0))
  server = server._replace(
    params=case.params('init_local/client1', case.common)
  )
  how = how._replace(
    trained=lambda update: update.client.own,
    server=lambda server: {'global': server.params},
  )

  def init_client(server, data, rng):
    client = algorithm.init_client(server, data, rng)
    if name == 'fedkd':
      client = client._replace(map=case_map)
    return client

  if name == 'fedkd':
    case_map = {'kernel': jnp.asarray(case.given('init_map/kernel')[0])}
  begun = algorithm._replace(
    init_server=lambda key: server, init_client=init_client
  )
  replay(case, begun, how)


def check_fml(case):
  def steps(update):
    (fit,) = update.fits
    reports = fit[1].reports
    return {
      f'step_{name}': steps_of(fit, reports[f'{name}_losses'])
      for name in ('own', 'meme')
    }

  how = Replay(steps, kept=lambda client, up: {'meme/{0}/{1}': up})
  check_pair(case, 'fml', how)


def check_fedkd(case):
  kept = lambda client, up: {'map/{0}/{1}': client.map, 'up/{0}/{1}': up}
  check_pair(case, 'fedkd', Replay(kept=kept))


def check_fedgen(case):
  """Labels and noise are the same in every batch."""
  algorithm = build(case, 'fedgen')
  how = Replay(
    server=lambda server: {
      'global': server.params,
      'head': server.params['head'],
      'generator': server.generator,
      'shares': server.shares,
      'running': dict(zip(('mean', 'var'), server.moments, strict=False)),
    },
  )

  def drawn(rng, shares, size, noise):
    sines = jnp.abs(jnp.sin(jnp.arange(size * noise, dtype=float)))
    return 3 * jnp.arange(size) % 10, sines.reshape(size, noise)

  with mock.patch('fedjax_pfl.algorithms.fedgen.drawn', drawn):
    replay(case, beginning_with(case, algorithm, generator='init_server/'), how)


CHECKS = {
  'fedgen': check_fedgen,
  'fedtgp': check_fedtgp,
  'fedgh': FEDGH,
  'fd': FD,
  'fml': check_fml,
  'fedkd': check_fedkd,
}

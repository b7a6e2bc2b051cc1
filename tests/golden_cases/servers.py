"""FedALA, FedBN, and methods whose server does more than average."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp

from fedjax_pfl.algorithms import fedfomo, pfedhn
from fedjax_pfl.client import own_examples
from fedjax_pfl.core import trees
from golden_cases.inputs import losses_of
from golden_cases.methods import check_method, check_with_term
from golden_cases.rounds import Replay, build, build_stages, replay

FEDAMP = partial(
  check_with_term,
  name='fedamp',
  server=lambda server: {},
  kept=lambda client, up: {'cloud/{0}/{1}': client.cloud},
)
FEDBN = partial(
  check_method,
  name='fedbn',
  trained=lambda update: update.upload,
  kept=lambda own, up: {'{0}/{1}': own},
)
FEDALA = partial(
  check_method,
  name='fedala',
  kept=lambda client, up: {'mixture/{0}/{1}': client.mixture},
  run=jax.jit,
)
FEDPAC = partial(
  check_method,
  name='fedpac',
  steps=lambda update: {'step_loss': losses_of(update.fits[-1])},
  trained=lambda update: trees.combine(update.upload.body, update.client),
  server=lambda server: {'global': server.params, 'means': server.means},
  kept=lambda head, up: {'head/{0}/{1}': head},
)


def check_fedala(case):
  """Its mixtures have the examples in stored order."""
  with mock.patch.object(own_examples, 'shuffled', lambda data, rng: data):
    FEDALA(case)


def check_feddyn(case):
  """The released form weighs by examples: its stage counts them first."""
  algorithm = build(case, 'feddyn')
  train, _ = case.data()

  def init_server(key):
    server = algorithm.init_server(key)
    return server._replace(mean_count=train.count.mean())

  how = Replay(
    steps=lambda update: {}, kept=lambda drift, up: {'drift/{0}/{1}': drift}
  )
  replay(case, algorithm._replace(init_server=init_server), how)


def check_ifca(case):
  """The second model is the first with the classes of its head reversed."""
  algorithm = build(case, 'ifca')

  def init_server(key):
    # Of one model: several with the given one are refused.
    first = build(case, 'ifca', clusters=1).init_server(key)
    params = jax.tree.map(lambda leaf: leaf[0], first.params)
    head = jax.tree.map(lambda leaf: leaf[..., ::-1], params['head'])
    pair = params, {**params, 'head': head}
    models = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)
    return first._replace(params=models)

  how = Replay(
    steps=lambda update: {
      'step_loss': losses_of(update.fits[0]),
      'cluster': update.upload.cluster,
    },
    trained=None,
    server=lambda server: {'models': server.params},
  )
  replay(case, algorithm._replace(init_server=init_server), how)


def check_fedfomo(case):
  """Its stage tells the server the number of clients.

  The validation part of the case is the last rows: they are stored where the
  package takes its own from.
  """
  algorithm = build(case, 'fedfomo', epsilon=0.0)

  def init_server(key):
    server = algorithm.init_server(key)
    return server._replace(no_help=jnp.zeros(case['clients']))

  def local_update(down, client, data, rng):
    places = data._replace(index=jnp.arange(len(data.index)))
    _, rest = fedfomo.divided(places, case['share'])
    data = data._replace(index=data.index.at[rest.index].set(data.index))
    return algorithm.local_update(down, client, data, rng)

  def respond(server, clients, up, senders):
    # Of equal numbers the package takes the smallest client, a case the first.
    alike = senders._replace(counts=jnp.ones_like(senders.counts))
    return algorithm.respond(server, clients, up, alike)

  how = Replay(
    trained=lambda update: update.upload.params,
    server=lambda server: {},
    kept=lambda client, up: {'help/{0}/{1}': client.help},
  )
  changed = {'local_update': local_update, 'respond': respond}
  replay(case, algorithm._replace(init_server=init_server, **changed), how)


def check_cfl(case):
  """Its stage tells the server the number of clients; clusters have numbers."""
  algorithm = build(case, 'cfl', clusters=case['max_clusters'])

  def init_server(key):
    server = algorithm.init_server(key)
    return server._replace(cluster=jnp.zeros(case['clients'], int))

  def state(server):
    last = int(server.cluster.max())
    models = {
      f'model{k}': trees.gather(server.params, k) for k in range(last + 1)
    }
    return {'cluster': server.cluster, **models}

  how = Replay(trained=lambda update: update.upload, server=state)
  replay(case, algorithm._replace(init_server=init_server), how)


def check_pfedhn(case):
  """Its stage gives the server the embeddings of all, and clients a number."""
  (stage,) = build_stages(case, 'pfedhn')
  server = stage.algorithm.init_server(jax.random.key(0))
  arrays = trees.named(server.made_by)
  for name in arrays.keys() - {'last/bias'}:  # there, too, the initial model
    arrays[name] = jnp.asarray(*case.given(f'init_server/{name}'))
  made_by = jax.tree.unflatten(
    jax.tree.structure(server.made_by), arrays.values()
  )
  number = jnp.zeros(case['clients'], int)
  server, clients = stage.initialize(
    server._replace(made_by=made_by),
    pfedhn.Client(number, arrays['embeddings']),
    None,
  )
  rows = iter(range(case['clients']))
  algorithm = stage.algorithm._replace(
    init_server=lambda key: server,
    init_client=lambda *args: trees.gather(clients, next(rows)),
  )
  how = Replay(
    trained=lambda update: update.upload,
    server=lambda server: {'made_by': trees.named(server.made_by)},
  )
  replay(case, algorithm, how)


CHECKS = {
  'pfedhn': check_pfedhn,
  'cfl': check_cfl,
  'feddyn': check_feddyn,
  'ifca': check_ifca,
  'fedala': check_fedala,
  'fedpac': FEDPAC,
  'fedamp': FEDAMP,
  'fedbn': FEDBN,
  'fedfomo': check_fedfomo,
}

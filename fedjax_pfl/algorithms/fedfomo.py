"""FedFomo (Zhang et al. 2021): a client mixes the models that help it.

  x_n <- max(0, (L_i(w_i) - L_i(w_n)) / |w_n - w_i|)    n among the M received
  w_i <- w_i + sum_n x_n (w_n - w_i) / sum_n x_n        if any x_n is above 0
  w_i <- SGD_tau(w_i; training data of client i)        i in the cohort S
  p_in <- p_in + (L_i(w_i) - L_i(w_n)) / |w_n - w_i|    before the mixture

L_i is the loss on the client's validation part: a `share` of its examples, on
which it does not train. A client keeps its model w_i. After a round the server
chooses for each client those M others of the cohort that have the largest p_i,
and sends their models in the client's next round; p begins at 0, so that models
which have not helped make room for unknown ones. With probability
max(epsilon - decay t, 0) in round t each of the M places goes to a client at
random.

The view 'personal' is w_i. There is no mean, and `aggregation` does nothing.

New client: the initial model, trained for one round.

Differs from the paper: models are those of the cohort with which the client
last trained, there the last of all clients. Epsilon and its decay are those of
the authors' code; places at random are filled before the others. That code
draws the validation part; here it is evenly spaced in the stored order, which
partitions may sort by class. Bytes count M models also where fewer can be sent.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, ClientData, Params, Task
from fedjax_pfl.data.batching import block_of


class HParams(global_model.HParams):
  models: int = field(5, rules.count('models', 'a share of clients'))  # M
  share: float = field(  # of the examples, for L_i
    0.2,
    rules.interval('(0, 1)', 'a percentage, or a number of examples'),
    traced=True,
  )
  epsilon: float = field(  # exploration in the first round
    0.3, rules.share(), traced=True
  )
  decay: float = field(0.05, rules.share(), traced=True)  # less in every round


FAMILY, PAPER = 'similarity', 'arxiv.org/abs/2012.08565'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()
NORM_STATISTICS = ('batch', 'running')  # models of others have their own
MOST_CLIENTS = 20_000  # 1.6 GB of these numbers
NOBODY = -1  # in the place of a model that was not received


class Server(NamedTuple):
  round: Array
  params: Params  # with which all clients begin
  no_help: Array  # [K] p with which a client begins


class Client(NamedTuple):
  params: Params  # w_i
  received: Params  # [M, ...] on the server until the next round
  ids: Array  # [M] whose they are
  help: Array  # [K] p_i


class Up(NamedTuple):
  params: Params
  help: Array  # [K] p_i
  draw: Array  # a key, for who is sent by chance


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedFomo."""

  def local_update(down, client, data, rng):
    held_out, rest = divided(data, hp.share)
    params, gains = mixture(task, hp, client, held_out, rng)
    known = jnp.where(client.ids == NOBODY, client.help.shape[0], client.ids)
    help = client.help.at[known].add(gains, mode='drop')
    params, info = hp.train.fit(task, params, rest, rng, down.round)
    client = client._replace(params=params, help=help)
    draw = jax.random.key_data(jax.random.fold_in(rng, 1))
    return client, Up(params, help, draw), info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def init_server(rng):
    return Server(*averaging.init_server(rng), jnp.zeros(1))

  def init_client(server, data, rng):
    received = trees.zeros(trees.repeated(server.params, hp.models))
    ids = jnp.full(hp.models, NOBODY)
    return Client(server.params, received, ids, server.no_help)

  def initialize(server, clients, data):
    num_clients = data.count.shape[0]  # known from here on
    server = server._replace(no_help=jnp.zeros(num_clients))
    help = jnp.zeros((num_clients, num_clients))
    return server, clients._replace(help=help)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: global_model.Server(
      server.round, client.received
    ),
    aggregate=global_model.count_round,
    respond=partial(respond, hp),
    personalize=lambda server, client, data, rng: {'personal': client.params},
    global_model=None,
  )
  stage = Stage('fedfomo', hp.train.rounds, algorithm, initialize)
  return (stage._replace(validate_clients=check_clients),)


def check_clients(data: ClientData) -> None:
  """Refuse clients that cannot keep an example for L_i."""
  if len(data.count) > MOST_CLIENTS:
    raise bad_input(
      'num_clients',
      got=len(data.count),
      expected=f'at most {MOST_CLIENTS} with FedFomo: every client keeps a '
      'number for every other',
      choices=['algorithm=fedamp', 'fewer clients'],
    )
  count = np.asarray(data.count)
  smallest = count[count > 0].min(initial=2)
  if smallest < 2:
    raise bad_input(
      'partition',
      got='a client with one example',
      expected='at least two of every client with FedFomo: one to train on, '
      'and one on which models are compared',
      choices=['fewer clients', 'dirichlet_min_size=2'],
    )


def respond(hp, server, clients, up, senders) -> Client:
  """Return the clients with the models of those that help them most."""
  number = min(hp.models, len(senders.ids))
  order = jnp.lexsort((senders.ids, senders.counts))  # on any devices
  others = senders.ids[order]
  scores = up.help[:, others]  # [C, C]
  itself = senders.ids[:, None] == others
  unknown = itself | (~senders.has_sent | (senders.counts == 0))[order]
  if not rules.equals(hp.epsilon, 0):
    # aggregate has added 1 to the clock.
    chance = jnp.maximum(hp.epsilon - hp.decay * (server.round - 1), 0)
    drawn = jax.vmap(partial(at_random, number, chance))(up.draw, unknown)
    scores = jnp.where(drawn, jnp.inf, scores)
  scores = jnp.where(unknown, -jnp.inf, scores)
  best, places = lax.top_k(scores, number)
  is_there = best > -jnp.inf
  ids = jnp.where(is_there, others[places], NOBODY)

  def chosen(leaf):
    rows = leaf[order[places]]  # [C, number, ...]
    real = is_there.reshape(is_there.shape + (1,) * (rows.ndim - 2))
    rows = jnp.where(real, rows, 0)
    return jnp.pad(rows, missing + ((0, 0),) * (rows.ndim - 2))

  missing = (0, 0), (0, hp.models - number)
  return clients._replace(
    received=jax.tree.map(chosen, up.params),
    ids=jnp.pad(ids, missing, constant_values=NOBODY),
  )


def at_random(places: int, chance: Array, draw: Array, unknown: Array) -> Array:
  """Return whether each sender [C] takes a place by chance, of `places`."""
  key = jax.random.wrap_key_data(draw)
  number = jnp.sum(jax.random.uniform(key, (places,)) < chance)
  luck = jax.random.uniform(jax.random.fold_in(key, 1), unknown.shape)
  luck = jnp.where(unknown, -1, luck)
  return jnp.sum(luck[None] > luck[:, None], 1) < number


def divided(data: ClientData, share: float) -> tuple[ClientData, ClientData]:
  """Return the examples for L_i, evenly spaced, and those to train on."""
  # Less than rounding: 0.3 * 100 is 30.000002 in 32 bits.
  held_out = jnp.ceil(share * data.count * (1 - 1e-6)).astype(data.count.dtype)
  held_out = jnp.minimum(held_out, jnp.maximum(data.count - 1, 0))
  number = data.count - held_out
  places = jnp.arange(data.index.shape[0])
  size = jnp.maximum(data.count, 1)
  # (place + 1) held_out modulo size, without that product: it might wrap.
  rest = lax.associative_scan(
    lambda a, b: (a + b) % size, jnp.full(places.shape, held_out)
  )
  # To train on, for L_i, padding; each of them in the stored order.
  part = jnp.where(places < data.count, rest < held_out, 2)
  data = data._replace(index=data.index[jnp.argsort(part)])
  return block_of(data, number, held_out), data._replace(count=number)


def mixture(task, hp, client, data, rng) -> tuple[Params, Array]:
  """Return w_i after the mixture, and the gains [M] of the models received."""
  changes = jax.tree.map(jnp.subtract, client.received, client.params)
  everyone = jax.tree.map(
    lambda w, leaf: jnp.concatenate([w[None], leaf]),
    client.params,
    client.received,
  )
  before, *others = own_examples.mean_losses(
    task, everyone, data, rng, hp.train.batch_size
  )
  lengths = trees.row_norms(norm_stats.learned(changes), client.ids.shape)
  gains = (before - jnp.stack(others)) / jnp.where(lengths > 0, lengths, 1)
  gains = jnp.where(lengths > 0, gains, 0)
  is_there = (client.ids != NOBODY) & (data.count > 0)
  gains = jnp.where(is_there, gains, 0)
  weights = jnp.maximum(gains, 0)
  total = jnp.sum(weights)
  weights = weights / jnp.where(total > 0, total, 1)
  step = trees.mixed(changes, weights[None])
  params = jax.tree.map(lambda w, d: w + d[0], client.params, step)
  return params, gains

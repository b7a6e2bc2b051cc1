"""A method whose clients only count visits, without model and loss."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from helpers import KEY, make_data

from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.core.types import Array
from fedjax_pfl.federated import rounds

DATA = make_data()


class Server(NamedTuple):
  round: Array
  total: Array  # of all examples, over all rounds


class Client(NamedTuple):
  visits: Array
  birth: Array  # a random number of its initial state
  last: Array  # a random number of its last round


def counting() -> Algorithm:
  """Return a method whose clients count their visits, and send n_i."""

  def local_update(down, client, data, rng):
    last = jax.random.uniform(rng)
    client = Client(client.visits + 1, client.birth, last)
    metrics = {'loss': last, 'server': down, 'count': data.count}
    return client, data.count.astype(float), metrics

  def aggregate(server, sent, senders):
    return Server(server.round + 1, server.total + jnp.sum(sent))

  return Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), int), jax.random.uniform(rng)),
    init_client=lambda server, data, rng: Client(
      jnp.zeros((), int), jax.random.uniform(rng) + data.count, jnp.zeros(())
    ),
    download=lambda server, client: server.total,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {'none': ()},
    predict=lambda view, x, mask: jnp.zeros((len(x), 3)),
  )


def start(algorithm=None, data=DATA):
  return rounds.init_states(algorithm or counting(), data, KEY(1))

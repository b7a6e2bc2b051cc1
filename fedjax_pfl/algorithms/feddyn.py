"""FedDyn (Acar et al. 2021): local objectives whose optimum is the global one.

  w_i <- SGD_tau(u -> L_i(u) + alpha <v_i, u> + alpha/2 |u - w|^2)   i in S
  v_i <- v_i + w_i - w
  w   <- mean over S of w_i + 1/N sum_i v_i          N clients in all, not |S|

All v_i begin at zero; in the paper's words, the client's g_i is -alpha v_i, and
the server's h is -alpha/N sum_i v_i. The mean over S has the weights 1 or n_i.

protocol 'released': as in the public code alpha_i = alpha n_bar / n_i, with
n_bar the mean of n_i over all clients: a client with more examples has a weaker
term.

The metrics `loss` and `losses` are of the objective, `cross_entropies` of L_i.

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: local SGD has momentum here. The public code clips
gradients to a norm of 10 (`clip_norm`), draws each client of a cohort by itself
(Bernoulli), and adds alpha/2 |u|^2 as a weight decay, after the clipping. It
tests means of w_i, over S and over all clients, without v; here w is tested.
With `buffer_size` or compression the server adds another change than its client
does, and its sum is no longer that of all v_i.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, norm_stats, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  alpha: float = field(
    0.01,
    rules.above(0, '0 for no such terms: that is algorithm=fedavg'),
    traced=True,
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'regularised', 'arxiv.org/abs/2111.04263'
FEDAVG_EQUIVALENT = None  # never: with alpha = 0 the server still adds v
PRIVATE_LEAVES = ()
NOT_CLIPPED = 'whose server adds up the changes that clients keep, unclipped'


class Server(NamedTuple):
  round: Array
  params: Params
  total: Params  # sum of v_i over all clients
  mean_count: Array  # [] examples of a client, the mean over all


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedDyn."""

  def local_update(down, drift, data, rng):
    alpha = hp.alpha
    if hp.protocol == 'released':
      alpha = alpha * down.mean_count / jnp.maximum(data.count, 1)

    def term(params):
      products = jax.tree.map(
        lambda v, u: jnp.sum(v * u),
        norm_stats.learned(drift),
        norm_stats.learned(params),
      )
      linear = sum(jax.tree.leaves(products))
      squared = 0.5 * losses.sum_squares(params, down.params)
      return alpha * (linear + squared)

    loss = losses.with_term(task.loss, term)
    params, info = hp.train.fit(task, down.params, data, rng, down.round, loss)
    change = jax.tree.map(jnp.subtract, params, down.params)
    drift = jax.tree.map(jnp.add, drift, change)
    return drift, params, info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    return Server(clock, params, optax.tree.zeros_like(params), jnp.ones(()))

  def aggregate(server, up, senders):
    clock, mean = averaging.aggregate(server, up, senders)
    change = jax.tree.map(lambda sent, w: sent - w, up, server.params)
    total = jax.tree.map(jnp.add, server.total, senders.sum(change))
    params = jax.tree.map(lambda w, v: w + v / senders.num_clients, mean, total)
    params = norm_stats.taken_from(mean, params)
    return Server(clock, params, total, server.mean_count)

  def initialize(server, clients, data):
    mean_count = jnp.mean(data.count.astype(server.mean_count.dtype))
    return server._replace(mean_count=mean_count), clients

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: optax.tree.zeros_like(server.params),
    download=lambda server, client: server._replace(total=()),
    aggregate=aggregate,
  )
  stage = Stage('feddyn', hp.train.rounds, algorithm)
  if hp.protocol == 'released':
    stage = stage._replace(initialize=initialize)
  return (stage,)

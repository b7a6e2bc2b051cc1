"""pFedGraph (Ye et al. 2023): the server learns who should learn from whom.

  w_i <- SGD_tau(w -> L_i(w) - lam <u_i, w> / |w|), from v_i   i in the cohort S
  x_i <- argmin_x  -sum_j x_j s_ij + alpha |x - p|^2       x >= 0, sum_j x_j = 1
  v_i <- sum_{j in S} x_ij w_j,     u_i <- sum_{j in S} x_ij w_j / |w_j|

  s_ij = cos(w_i - w_0, w_j - w_0), above 0.9: 1     p_j = a_j / sum_j a_j

with a_j = 1 or n_j. The minimum is the projection of p + s_i / (2 alpha) to the
simplex. The server keeps v_i and u_i, and sends them in the next round in which
the client takes part; v_i begins as w_0, u_i as 0. They are the state of the
client here, and v_i is its view `personal`. There is no one mean.

protocol 'released': the authors' code, which adds lam <u_i, w> / |w|: its steps
lead away from u_i.

New client: w_0, trained for one round of which nothing is sent; its view is
w_0 still.

Differs from the paper: there all clients take part in every round; here v_i
mixes the models of the clients with which client i last trained. The bound of
0.9 is of the code alone. a_j are 1 by default, n_j there. The
code scores a model before and after its local training, and prints the tests of
the best of all these by validation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Senders, Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  lam: float = field(
    0.01,
    rules.at_least(0, 'the sign of the public code: hp.protocol=released'),
    traced=True,
  )
  alpha: float = field(
    0.8, rules.above(0, '0, by which the equations divide'), traced=True
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'similarity', 'proceedings.mlr.press/v202/ye23b.html'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()
ALIKE = 0.9


class Client(NamedTuple):
  params: Params  # v_i
  direction: Params  # u_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of pFedGraph."""
  lam = -hp.lam if hp.protocol == 'released' else hp.lam

  def local_update(down, client, data, rng):
    towards = norm_stats.learned(down.params.direction)

    def pull(params):
      params = norm_stats.learned(params)
      products = jax.tree.map(lambda u, w: jnp.sum(u * w), towards, params)
      return -lam * sum(jax.tree.leaves(products)) / norm(params)

    loss = losses.with_term(task.loss, pull)
    start = down.params.params
    params, info = hp.train.fit(task, start, data, rng, down.round, loss)
    return client, params, info.metrics()

  def respond(server, clients, up, senders):
    weights = graph(server.params, up, senders, hp)
    norms = jax.vmap(lambda model: norm(norm_stats.learned(model)))(up)
    units = jax.vmap(lambda tree, size: jax.tree.map(lambda w: w / size, tree))
    return Client(
      trees.mixed(up, weights),
      trees.mixed(units(up, jnp.maximum(norms, 1e-12)), weights),
    )

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_client=lambda server, data, rng: Client(
      server.params, jax.tree.map(jnp.zeros_like, server.params)
    ),
    download=lambda server, client: server._replace(params=client),
    aggregate=global_model.count_round,
    respond=respond,
    personalize=lambda server, client, data, rng: {'personal': client.params},
    global_model=None,
  )
  return (Stage('pfedgraph', hp.train.rounds, algorithm),)


def norm(params: Params) -> Array:
  """Return |w| of all leaves together."""
  return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)))


def graph(first: Params, up: Params, senders: Senders, hp: HParams) -> Array:
  """Return x_ij of the models [C, ...] that were sent: [C, C]."""
  moved = jax.tree.map(jnp.subtract, up, first)
  products = trees.products(norm_stats.learned(moved))  # [C, C]
  sizes = jnp.sqrt(jnp.diag(products))
  likeness = products / jnp.maximum(sizes[:, None] * sizes, 1e-8)
  likeness = jnp.where(likeness > ALIKE, 1, likeness)
  shares = senders.masked(hp.train.weights(senders.counts))
  shares = shares / jnp.maximum(jnp.sum(shares), 1e-30)
  wanted = shares + likeness / (2 * hp.alpha)
  return jax.vmap(to_simplex, (0, None))(wanted, shares > 0)


def to_simplex(wanted: Array, is_there: Array) -> Array:
  """Return the nearest x >= 0 of sum 1, 0 where nobody is there."""
  wanted = jnp.where(is_there, wanted, -jnp.inf)
  largest = -jnp.sort(-wanted)
  sums = jnp.cumsum(jnp.where(jnp.isinf(largest), 0, largest)) - 1
  number = jnp.arange(1, len(wanted) + 1)
  last = jnp.sum(largest * number > sums)  # how many x are above 0
  return jnp.maximum(wanted - sums[last - 1] / jnp.maximum(last, 1), 0)

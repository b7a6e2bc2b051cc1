"""FedAMP (Huang et al. 2021): a client learns more from those that are like it.

  w_i  <- SGD_tau(w -> L_i(w) + lam / (2 alpha) |w - u_i|^2), from w_i   i in S
  x_ij <- alpha / sigma exp(-|w_i - w_j|^2 / sigma)           i != j, both in S
  x_ii <- 1 - sum_{j != i} x_ij
  u_i  <- sum_{j in S} x_ij w_j

A client keeps its model w_i; the server keeps its cloud model u_i, and sends it
in the next round in which the client takes part. Both begin as w_0, and are the
state of the client here. There is no mean, and `aggregation` does nothing.

alpha / sigma (|S| - 1) should be at most 1: above that x_ii may be negative.

New client: w_0, trained near w_0 for one round, of which nothing is sent.

Differs from the paper: there all clients take part in every round; here u_i
mixes the models of the clients with which client i last trained. The paper has
no public code. That of PFLlib pulls by the norm |w - u_i| and not its square.
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
  lam: float = field(1.0, rules.at_least(0), traced=True)
  alpha: float = field(10.0, rules.above(0), traced=True)
  sigma: float = field(100.0, rules.above(0), traced=True)


FAMILY, PAPER = 'similarity', 'arxiv.org/abs/2007.03797'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()


class Client(NamedTuple):
  params: Params  # w_i
  cloud: Params  # u_i, on the server


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAMP."""

  def local_update(down, client, data, rng):
    def pull(params):
      distance = losses.sum_squares(params, down.params)
      return 0.5 * hp.lam / hp.alpha * distance

    loss = losses.with_term(task.loss, pull)
    params, info = hp.train.fit(
      task, client.params, data, rng, down.round, loss
    )
    return client._replace(params=params), params, info.metrics()

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_client=lambda server, data, rng: Client(server.params, server.params),
    download=lambda server, client: server._replace(params=client.cloud),
    aggregate=global_model.count_round,
    respond=lambda server, clients, up, senders: clients._replace(
      cloud=trees.mixed(up, similarities(up, senders, hp.alpha, hp.sigma))
    ),
    personalize=lambda server, client, data, rng: {'personal': client.params},
    global_model=None,
  )
  return (Stage('fedamp', hp.train.rounds, algorithm),)


def similarities(
  models: Params, senders: Senders, alpha: float, sigma: float
) -> Array:
  """Return x_ij of the models [C, ...] that were sent: [C, C]."""
  away = alpha / sigma * jnp.exp(-squared_distances(models) / sigma)
  away = jnp.where(senders.counts > 0, senders.masked(away), 0)
  away = away * (1 - jnp.eye(len(away)))
  return away + jnp.diag(1 - away.sum(1))


def squared_distances(models: Params) -> Array:
  """Return |w_i - w_j|^2 of all pairs of models [C, ...]: [C, C].

  From differences: products would cancel where models are alike.
  """
  models = norm_stats.learned(models)

  def to_all(model):
    apart = jax.tree.map(jnp.subtract, models, model)
    leaves = jax.tree.leaves(apart)
    return sum(jnp.sum(leaf**2, range(1, leaf.ndim)) for leaf in leaves)

  return jax.lax.map(to_all, models)

"""FedNova (Wang et al. 2020): updates are divided by their local steps.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S, T_i steps
  d_i <- (w - w_i) / |alpha_i|_1
  w   <- w - (sum_i p_i |alpha_i|_1) sum_i p_i d_i     p_i = a_i / sum_j a_j

alpha_i are the weights by which the client's gradients enter its update: with
momentum rho

  |alpha_i|_1 = (T_i - rho (1 - rho^T_i) / (1 - rho)) / (1 - rho),

and T_i without. Clients with equal numbers of steps make it FedAvg. A client
without a step sends nothing that counts.

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: the weights a_i are 1 by default, where its p_i are by
n_i; the proximal form is left out. The momentum of its server is
`server_optimizer=sgd` while the learning rate is constant: the authors' code
divides what it adds to the momentum by the rate of the round.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Params, Task

HParams = global_model.HParams
FAMILY, PAPER = 'global', 'arxiv.org/abs/2007.07481'
FEDAVG_EQUIVALENT = None  # only where all clients have as many steps
PRIVATE_LEAVES = ()
NOT_CLIPPED = 'whose server multiplies two parts of an upload: two clips'
NORM_STATISTICS = ('batch',)  # it averages directions, not models


class Up(NamedTuple):
  direction: Params  # d_i
  norm: Array  # [] |alpha_i|_1


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedNova."""
  rules.check_sgd(
    hp.train.optimizer, 'FedNova', 'its norm is that of the steps of SGD'
  )

  def local_update(server, client, data, rng):
    params, info = hp.train.fit(task, server.params, data, rng, server.round)
    norm = norm_of_steps(info.num_steps, hp.train.momentum)
    direction = jax.tree.map(
      lambda start, end: (start - end) / jnp.maximum(norm, 1),
      server.params,
      params,
    )
    return client, Up(direction, norm), info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def aggregate(server, up, senders):
    weights = jnp.where(up.norm > 0, hp.train.weights(senders.counts), 0)
    # Without any step there is no direction: avoid 0 / 0.
    weights = jnp.where(jnp.any(senders.masked(weights) > 0), weights, 1)
    norm, direction = senders.mean((up.norm, up.direction), weights)
    params = jax.tree.map(lambda w, d: w - norm * d, server.params, direction)
    return global_model.Server(server.round + 1, params)

  algorithm = averaging._replace(aggregate=aggregate)
  return (Stage('fednova', hp.train.rounds, algorithm),)


def norm_of_steps(num_steps: Array, momentum: float) -> Array:
  """Return |alpha|_1 of so many steps, which is at least 1 of one or more."""
  steps = num_steps.astype(jnp.result_type(float))
  if rules.equals(momentum, 0):
    return steps
  kept = 1 - momentum
  return (steps - momentum * (1 - momentum**steps) / kept) / kept

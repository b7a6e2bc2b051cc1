"""SCAFFOLD (Karimireddy et al. 2020): control variates against client drift.

  w_i  <- SGD_tau(w; data of client i), and after every step of it
  w_i  <- w_i - eta (c - c_i)                   for i in the cohort S
  c_i' <- c_i - c + (w - w_i) / (T_i eta)       option II, T_i steps
  w    <- sum_i a_i w_i / sum_i a_i             a_i = 1 or n_i
  c    <- c + 1/N sum_i (c_i' - c_i)            N clients in all, not |S|

All variates begin at zero, so that the first round is FedAvg's. A client
without a step keeps its variate. A client downloads and uploads two models.

The correction is a step of its own, outside the momentum buffer: with momentum
beta, (w - w_i) / (T_i eta) is up to 1 / (1 - beta) times a gradient, and the
buffer would amplify it a second time.

New client: it has the global model, and fine-tunes it as all others do; a
variate matters in rounds alone.

Differs from the paper: local SGD has momentum; the server's learning rate is 1;
weights a_i may be n_i. The public code of FedConcat divides by |S|, not N, and
begins with one random network as the variate of all clients; with full
participation both make no difference.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Params, Task

HParams = global_model.HParams
FAMILY, PAPER = 'global', 'arxiv.org/abs/1910.06378'
FEDAVG_EQUIVALENT = None  # its first round alone is
PRIVATE_LEAVES = ()
NOT_CLIPPED = 'whose c is the mean of what clients keep, unclipped'


class Server(NamedTuple):
  round: Array
  params: Params
  variate: Params  # c


class Up(NamedTuple):
  params: Params
  change: Params  # c_i' - c_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of SCAFFOLD."""
  rules.check_sgd(
    hp.train.optimizer, 'SCAFFOLD', 'a variate is a mean of its gradients'
  )

  def local_update(down, variate, data, rng):
    rate = hp.train.learning_rate(down.round)
    drift = jax.tree.map(jnp.subtract, down.variate, variate)
    tx = optax.chain(hp.train.sgd(down.round), against(drift, rate))
    params, info = hp.train.fit(task, down.params, data, rng, down.round, tx=tx)
    scale = 1 / (jnp.maximum(info.num_steps, 1) * rate)
    has_moved = info.num_steps > 0
    change = jax.tree.map(
      lambda w, v, c: jnp.where(has_moved, scale * (w - v) - c, 0.0),
      down.params,
      params,
      down.variate,
    )
    variate = jax.tree.map(jnp.add, variate, change)
    return variate, Up(params, change), info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    return Server(clock, params, optax.tree.zeros_like(params))

  def aggregate(server, up, senders):
    mean = averaging.aggregate(server, up.params, senders)
    change = senders.sum(up.change)
    variate = jax.tree.map(
      lambda c, d: c + d / senders.num_clients, server.variate, change
    )
    return Server(*mean, variate)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: optax.tree.zeros_like(server.params),
    download=lambda server, variate: server,
    aggregate=aggregate,
  )
  return (Stage('scaffold', hp.train.rounds, algorithm),)


def against(drift: Params, rate: Array) -> optax.GradientTransformation:
  """Return updates - rate drift."""
  return optax.stateless(
    lambda updates, params: jax.tree.map(
      lambda update, constant: update - rate * constant, updates, drift
    )
  )

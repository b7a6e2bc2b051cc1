"""Centralized (Oh, Kim and Yun 2022): one client holds all data.

  m <- beta m + (g + decay w)      for every batch, epoch after epoch
  w <- w - eta m

It is FedAvg with one client whose optimiser keeps its state: momentum is not
reset between rounds. With trainable 'body' the head keeps its initial values,
with 'head' the body does; weight decay leaves the frozen part alone, too.

New client: it has the model w, and fine-tunes it as all others do.

Differs from the paper: nothing. With more than one client it is FedAvg that
averages the momenta, too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model, optimisers
from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  trainable: str = 'full'  # or 'body', 'head'
  keep_momentum: bool = True


FAMILY, PAPER = 'global', 'arxiv.org/abs/2106.06042'
FEDAVG_EQUIVALENT = {'trainable': 'full', 'keep_momentum': False}
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params
  opt_state: optax.OptState  # () without keep_momentum


class Upload(NamedTuple):
  params: Params  # the trained part
  opt_state: optax.OptState


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of centralised training."""
  trainable = trees.part_mask(task, hp.trainable, 'hp.trainable')
  sent = norm_stats.with_all(trainable)

  def make_tx(clock):
    return optimisers.freeze_except(hp.train.sgd(clock), trainable)

  def init_server(rng):
    clock, params = jnp.zeros((), jnp.int32), task.init(rng)
    opt_state = make_tx(clock).init(params) if hp.keep_momentum else ()
    return Server(clock, params, opt_state)

  def local_update(server, client, data, rng):
    clock, start, opt_state = server
    tx = make_tx(clock)
    params, info = hp.train.fit(
      task, start, data, rng, clock, tx=tx, opt_state=opt_state or None
    )
    opt_state = info.opt_state if hp.keep_momentum else ()
    up = Upload(trees.select(params, sent), opt_state)
    return client, up, info.metrics()

  def aggregate(server, uploads, senders):
    mean = senders.mean(uploads, hp.train.weights(senders.counts))
    params = trees.combine(mean.params, server.params)
    # A mean of whole numbers, Adam's count, would round its weights to 0.
    opt_state = jax.tree.map(
      lambda mean, sent: sent.max(0) if sent.dtype == jnp.int32 else mean,
      mean.opt_state,
      uploads.opt_state,
    )
    return Server(server.round + 1, params, opt_state)

  algorithm = global_model.federated_averaging(task, hp, local_update)._replace(
    init_server=init_server,
    download=lambda server, client: server,  # with the momentum
    aggregate=aggregate,
  )
  return (Stage('centralized', hp.train.rounds, algorithm),)

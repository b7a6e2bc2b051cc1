"""Ditto (Li, Hu, Beirami and Smith 2021): a model of one's own, held back.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i
  v_i <- v_i - eta (grad L_i(v_i) + lam (v_i - w))     w as the round began

A client keeps v_i, which begins as w. The pull lam (v - w) joins the gradient,
and its momentum, if `personal_momentum` is above 0.

protocol 'released' is what the public code of the FedBABU paper does. There
is one model u_i for each client of the cohort; the pull is a step of its own,
outside the momentum m; and the models pulled are averaged:

  u_i <- w;   u_i <- u_i - eta m - eta lam (u_i - anchor)     tau epochs
  w   <- sum_i a_i u_i / sum_i a_i

with u_i on the right as it was before the step, and eta that of round 0 in
all rounds. The anchor is w ('global'; all versions before March 2022, which
made the tables) or a copy of w that first trained tau epochs on the client's
data without the pull ('local'; the last version). Nothing personal survives a
round: in evaluation the clients of the last cohort show their u_i, all others
the global model of the round before. Only for that a client keeps its last
u_i and when it was, and the server the model before the last.

Differs from the paper: one learning rate for both models; the weights a_i are
1 by default, as in the FedBABU paper's public code.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Params, Task

ANCHORS = ('global', 'local')


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  lam: float = 0.75
  personal_momentum: float = 0.0  # paper: of v_i, anew in every round
  personal_epochs: int | None = None  # paper: of v_i; None: as w_i
  protocol: str = 'paper'  # or 'released'
  anchor: str = 'global'  # released: or 'local'


FEDAVG_EQUIVALENT = {}  # always, on its global model
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


class ReleasedServer(NamedTuple):
  round: Array
  params: Params
  previous: Params  # before the last round


class ReleasedClient(NamedTuple):
  params: Params  # after its last local training
  round: Array  # [] the server's clock then, after the round


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of Ditto."""
  check_protocol(hp.protocol)
  if hp.anchor not in ANCHORS:
    raise bad_input(
      'hp.anchor',
      got=hp.anchor,
      expected='the model that the released code pulls to',
      choices=ANCHORS,
      cause='a typing error',
    )
  if not hp.lam >= 0:
    raise bad_input(
      'hp.lam',
      got=hp.lam,
      expected='a number, 0 or more; 0 trains every client alone',
      cause='a sign: it pulls v_i to the global model',
    )
  if not 0 <= hp.personal_momentum < 1:
    raise bad_input(
      'hp.personal_momentum',
      got=hp.personal_momentum,
      expected='a momentum from 0 to below 1',
      cause='a sign, or a percentage',
    )
  if not (hp.personal_epochs is None or _is_count(hp.personal_epochs)):
    raise bad_input(
      'hp.personal_epochs',
      got=hp.personal_epochs,
      expected='whole epochs, 1 or more, or None: as many as the global model',
      cause='0 to switch the personal model off: that is FedAvg',
    )
  parts = _as_released if hp.protocol == 'released' else _as_written
  algorithm = parts(task, hp)
  return (Stage('ditto', hp.train.rounds, algorithm),)


def pull(anchor: Params, rate: float | Array) -> optax.GradientTransformation:
  """Return updates + rate (params - anchor)."""
  return optax.stateless(
    lambda updates, params: jax.tree.map(
      lambda update, own, other: update + rate * (own - other),
      updates,
      params,
      anchor,
    )
  )


def _as_written(task, hp):
  """Return the algorithm of the paper."""
  own = hp.train._replace(
    momentum=hp.personal_momentum,
    epochs=(
      hp.train.epochs if hp.personal_epochs is None else hp.personal_epochs
    ),
  )

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=hp.train.sgd(server.round),
      batching=hp.train.batching(task),
    )
    client, own_info = local_training.fit(
      task.loss,
      client,
      data,
      jax.random.fold_in(rng, 1),
      tx=optax.chain(pull(server.params, hp.lam), own.sgd(server.round)),
      batching=own.batching(task),
    )
    num_steps = info.num_steps + own_info.num_steps
    return client, params, {**info.metrics(), 'num_steps': num_steps}

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  return Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: server.params,
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': client,
    },
    predict=task.logits,
    global_model=lambda server: server.params,
  )


def _as_released(task, hp):
  """Return the algorithm of the public code."""

  def local_update(server, client, data, rng):
    del client
    sgd = hp.train.sgd(0)  # the code lowers a rate that it does not use
    fit = partial(local_training.fit, task.loss, server.params, data)
    batching = hp.train.batching(task)
    anchor, num_anchor_steps = server.params, 0
    if hp.anchor == 'local':
      # The key of a second fit: the anchor is the extra one.
      anchor, info = fit(jax.random.fold_in(rng, 1), tx=sgd, batching=batching)
      num_anchor_steps = info.num_steps
    rate = hp.lam * hp.train.learning_rate(0)
    tx = optax.chain(sgd, pull(anchor, -rate))
    params, info = fit(rng, tx=tx, batching=batching)
    num_steps = info.num_steps + num_anchor_steps
    client = ReleasedClient(params, server.round + 1)
    return client, params, {**info.metrics(), 'num_steps': num_steps}

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return ReleasedServer(server.round + 1, mean, server.params)

  def init_server(rng):
    params = task.init(rng)
    return ReleasedServer(jnp.zeros((), jnp.int32), params, params)

  def own_model(server, client):
    took_part = client.round == server.round
    return jax.tree.map(
      partial(jnp.where, took_part), client.params, server.previous
    )

  return Algorithm(
    init_server=init_server,
    init_client=lambda server, data, rng: ReleasedClient(
      server.params, server.round
    ),
    download=lambda server, client: Server(server.round, server.params),
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': own_model(server, client),
    },
    predict=task.logits,
    global_model=lambda server: server.params,
  )


def _is_count(value):
  return isinstance(value, int) and not isinstance(value, bool) and value >= 1

"""Ditto (Li, Hu, Beirami and Smith 2021): a personal model near the global one.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i
  v_i <- v_i - eta (grad L_i(v_i) + lam (v_i - w))     w as the round began

A client keeps v_i, which begins as w. The pull lam (v - w) joins the gradient,
and its momentum, if `personal_momentum` is above 0. With Adam that is beta_1 of
v_i, by default 0.

protocol 'released': FedAvg with such a pull in its local training, and no v_i,
as in the public code of the FedBABU paper.

New client: v_i begins as w and learns near it for one round, of which nothing
is sent. With protocol 'released' it is a client outside the last cohort.

Differs from the paper: one learning rate for both models; the weights a_i are
1 by default, as in the FedBABU paper's public code.
"""

from functools import partial
from typing import NamedTuple

import jax
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  lam: float = field(0.75, rules.at_least(0), traced=True)
  personal_momentum: float = field(  # paper: of v_i, anew in every round
    0.0, rules.momentum(), traced=True
  )
  personal_epochs: int | None = field(  # paper: of v_i; None: as w_i
    None,
    rules.count('epochs', '0: that is FedAvg').or_none(
      'as many as the global model'
    ),
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'
  anchor: str = field(  # released: or 'local'
    'global', rules.one_of(('global', 'local'), 'a model to pull to')
  )


PARTS = {
  'anchor': ('protocol', 'released'),
  'personal_momentum': ('protocol', 'paper'),
  'personal_epochs': ('protocol', 'paper'),
}
FAMILY, PAPER = 'regularised', 'arxiv.org/abs/2012.04221'
FEDAVG_EQUIVALENT = {'protocol': 'paper'}
FEDAVG_WHERE = 'its global model'
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of Ditto."""
  is_released = hp.protocol == 'released'
  algorithm = released_algorithm if is_released else paper_algorithm
  return (Stage('ditto', hp.train.rounds, algorithm(task, hp)),)


def paper_algorithm(task: Task, hp: HParams) -> Algorithm:
  """Return Ditto with a personal model for each client, as in the paper."""
  personal = hp.train._replace(
    momentum=hp.personal_momentum,
    epochs=hp.personal_epochs or hp.train.epochs,
  )

  def local_update(server, client, data, rng):
    params, info = hp.train.fit(task, server.params, data, rng, server.round)
    tx = optax.chain(pull(server.params, hp.lam), personal.sgd(server.round))
    second = jax.random.fold_in(rng, 1)
    client, personal_info = personal.fit(
      task, client, data, second, server.round, tx=tx
    )
    num_steps = info.num_steps + personal_info.num_steps
    return client, params, {**info.metrics(), 'num_steps': num_steps}

  return global_model.federated_averaging(task, hp, local_update)._replace(
    init_client=lambda server, data, rng: server.params,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': client,
    },
  )


def pull(anchor: Params, rate: float | Array) -> optax.GradientTransformation:
  """Return updates + rate (params - anchor), but of running statistics."""

  def pulled(updates, params):
    moved = jax.tree.map(
      lambda update, v, w: update + rate * (v - w), updates, params, anchor
    )
    return norm_stats.taken_from(updates, moved)

  return optax.stateless(pulled)


# ---- The public code of the FedBABU paper ------------------------------------


class ReleasedServer(NamedTuple):
  round: Array
  params: Params
  previous: Params  # before the last round


class ReleasedClient(NamedTuple):
  params: Params  # after its last local training
  round: Array  # [] the server's clock then, after the round


def released_algorithm(task: Task, hp: HParams) -> Algorithm:
  """Return Ditto without personal models: FedAvg with a pull in local training.

    u_i <- w;   u_i <- u_i - eta m - eta lam (u_i - anchor)     tau epochs
    w   <- sum_i a_i u_i / sum_i a_i

  The pull is a step of its own, outside the momentum m; u_i on the right is
  that before the step, and eta that of round 0 in all rounds. The anchor is w
  ('global': all versions before March 2022, which made the tables) or a copy of
  w that first trained tau epochs on the client's data without the pull
  ('local': the last version). In evaluation the clients of the last cohort use
  their u_i, all others the global model of the round before. For that alone a
  client keeps its last u_i with its round, and the server the last but one w;
  after a round in which all clients fail (`dropout_rate`) that is one round
  older, a case that the code does not have.
  """

  def local_update(server, client, data, rng):
    fit = partial(hp.train.fit, task, server.params, data)
    anchor, num_anchor_steps = server.params, 0
    if hp.anchor == 'local':
      # The key of a second fit: the fit of u_i has the key as given.
      anchor, info = fit(jax.random.fold_in(rng, 1), 0)
      num_anchor_steps = info.num_steps
    rate = hp.lam * hp.train.learning_rate(0)
    # Round 0: the code lowers a rate that it does not use.
    tx = optax.chain(hp.train.sgd(0), pull(anchor, -rate))
    params, info = fit(rng, 0, tx=tx)
    num_steps = info.num_steps + num_anchor_steps
    client = ReleasedClient(params, server.round + 1)
    return client, params, {**info.metrics(), 'num_steps': num_steps}

  averaging = global_model.federated_averaging(task, hp, local_update)

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    return ReleasedServer(clock, params, previous=params)

  def aggregate(server, uploads, senders):
    clock, mean = averaging.aggregate(server, uploads, senders)
    return ReleasedServer(clock, mean, previous=server.params)

  return averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: ReleasedClient(
      server.params, server.round
    ),
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': trees.choose(
        client.round == server.round, client.params, server.previous
      ),
    },
  )

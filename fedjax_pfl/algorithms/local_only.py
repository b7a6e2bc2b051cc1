"""Local only (Oh, Kim and Yun 2022): each client trains alone.

  w_i <- w                                      before round 0, for all i
  w_i, m_i <- SGD_tau(w_i, m_i; data of i)      momentum m_i is never reset

All clients begin with the same w. There is no communication: the server counts
rounds, and a client counts those in which it trained, for its learning rate;
`aggregation` does nothing.

New client: none. The server has nothing to give it, so that it would be one
of the clients that are there; `unseen_clients` is refused.

Differs from the paper: nothing in training. The paper's table prints for every
client the best TEST accuracy over the epochs, which a run stores as `test_best`
in addition to the accuracy of the last round.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Params, Task

HParams = global_model.HParams
FAMILY, PAPER = 'local', 'arxiv.org/abs/2106.06042'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ('params',)
ACROSS_MODELS = ''


class Client(NamedTuple):
  round: Array  # rounds in which it trained: it has no server's clock
  params: Params
  opt_state: optax.OptState


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of Local-only."""

  def init_client(server, data, rng):
    opt_state = hp.train.sgd(server.round).init(server.params)
    return Client(jnp.zeros((), jnp.int32), server.params, opt_state)

  def local_update(down, client, data, rng):
    clock, start, opt_state = client
    params, info = hp.train.fit(
      task, start, data, rng, clock, opt_state=opt_state
    )
    return Client(clock + 1, params, info.opt_state), (), info.metrics()

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_client=init_client,
    download=lambda server, client: (),
    aggregate=global_model.count_round,
    personalize=lambda server, client, data, rng: {'personal': client.params},
    global_model=None,
  )
  return (Stage('local_only', hp.train.rounds, algorithm),)

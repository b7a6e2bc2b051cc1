"""FedAvg (McMahan et al. 2017): train everywhere, average everything.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

Differs from the paper: momentum 0.9, as in all runs of the FedBABU paper, with
a buffer that starts anew in every round; the weights a_i are 1 by default, as
in that paper's public code (n_i / n in its text; the same when balanced).
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl import local, personalize, trees
from fedjax_pfl.algorithm import Algorithm, Stage
from fedjax_pfl.types import Array, Params, Task


class HParams(NamedTuple):
  train: local.Training = local.Training()
  personal: personalize.Personalization = personalize.Personalization()


FEDAVG_WHEN = {}  # always
PRIVATE = ()


class Server(NamedTuple):
  round: Array
  params: Params


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAvg."""

  def local_update(server, client, data, rng):
    params, info = local.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=hp.train.sgd(server.round),
      batching=hp.train.batching(task),
    )
    return client, params, info.metrics()

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: (),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalize.views(
      task, server.params, data, rng, hp.personal
    ),
    predict=personalize.make_predict(task),
  )
  return (Stage('fedavg', hp.train.rounds, algorithm),)

"""FedAvg (McMahan et al. 2017): train everywhere, average everything.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

Differs from the paper: momentum 0.9, as in all runs of the FedBABU paper, with
a buffer that starts anew in every round; the weights a_i are 1 by default, as
in that paper's public code (n_i / n in its text; the same when balanced).

With rho = head_lr_ratio the head learns at rho eta, the body at eta, and both
are averaged (FedBABU paper, table 23); rho = 0 trains FedBABU's body.

The view 'local_update' is FedAvg-LU, as the SuPerFed paper compares it: it is
'finetuned' by another name.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Params, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  head_lr_ratio: float = 1.0  # rho


FEDAVG_EQUIVALENT = {'head_lr_ratio': 1.0}
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAvg."""
  make_tx = make_optimiser(task, hp.train, hp.head_lr_ratio)

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=make_tx(server.round),
      batching=hp.train.batching(task),
    )
    return client, params, info.metrics()

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  def views(server, client, data, rng):
    models = personalization.views(task, server.params, data, rng, hp.finetune)
    return {**models, 'local_update': models['finetuned']}

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: (),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=views,
    predict=personalization.make_predict(task),
    global_model=lambda server: server.params,
  )
  return (Stage('fedavg', hp.train.rounds, algorithm),)


def make_optimiser(
  task: Task, train: local_training.LocalTraining, ratio: float
) -> Callable[[Array], optax.GradientTransformation]:
  """Return clock -> SGD at eta(clock) for the body, rho eta for the head."""
  if not (ratio >= 0 and math.isfinite(ratio)):
    raise bad_input(
      'hp.head_lr_ratio',
      got=ratio,
      expected='a number, 0 or more: rho in eta_head = rho eta_body',
      choices=[1.0, 0.1, 0.01, 0.0],
      cause='a sign, or a learning rate instead of a ratio',
    )
  if ratio == 1:
    return train.sgd
  slower = train._replace(
    learning_rate=lambda clock: ratio * train.learning_rate(clock)
  )
  group = jax.tree.map(
    lambda is_head: 'head' if is_head else 'body', task.is_head
  )

  def make_tx(clock):
    rules = {'body': train.sgd(clock), 'head': slower.sgd(clock)}
    return optax.partition(rules, group)

  return make_tx

"""FedLC (Zhang et al. 2022): logits calibrated by how rare a class is.

  w_i <- SGD_tau(CE on the logits z_c - tau n_c^(-1/4); data of client i)
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i, i in the cohort

n_c are the client's training examples of class c. Classes that it has none of
are left out of its softmax; a client with one class alone has loss 0 and only
decays. Tests, and the training that personalises, are with the logits as they
are.

Differs from the paper: the true class is in the denominator of the softmax.
Without it the loss has no lower bound, and every public code keeps it. The
weights a_i are 1 by default; tau is not given in the paper.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Params, Task
from fedjax_pfl.data.label_counts import label_counts

EXCLUDED = -1e9  # not -inf: a padded row of such a class would give 0 * inf


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  tau: float = 1.0


FEDAVG_EQUIVALENT = (
  None  # tau = 0 is, but only where all clients have all classes
)
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedLC."""
  if not 0 <= hp.tau < math.inf:
    raise bad_input(
      'hp.tau',
      got=hp.tau,
      expected='a number, 0 or more',
      cause='a sign: it would favour the frequent classes',
    )

  def local_update(server, client, data, rng):
    counts = label_counts(data, task.num_classes)
    params, info = local_training.fit(
      objective(task, counts, hp.tau),
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
    personalize=lambda server, client, data, rng: personalization.views(
      task, server.params, data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
    global_model=lambda server: server.params,
  )
  return (Stage('fedlc', hp.train.rounds, algorithm),)


def objective(task: Task, counts: Array, tau: float) -> local_training.Loss:
  """Return the cross-entropy of calibrated logits; `counts` are [Y]."""
  margin = tau * jnp.maximum(counts, 1) ** -0.25  # [Y]

  def loss(params, batch, rng):
    logits = task.train_outputs(params, batch, rng).logits
    calibrated = jnp.where(counts > 0, logits - margin, EXCLUDED)
    return losses.masked_cross_entropy(calibrated, batch)

  return loss

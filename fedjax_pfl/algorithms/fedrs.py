"""FedRS (Li and Zhan 2021): a restricted softmax for classes one has not got.

  w_i <- SGD_tau(CE on the logits a_c z_c; data of client i)   i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i                             a_i = 1 or n_i

  a_c = 1 if the client has training examples of class c, else alpha
  a_c = alpha + (1 - alpha) n_c / max n          graded; n_c examples of class c

The whole logit is scaled, its bias included. Tests, and the training that
personalises, are with the logits as they are.

Differs from the paper: momentum 0.9, and weights a_i that are 1 by default.
`graded` is what the authors' later code does; its head has no bias there.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Params, Task
from fedjax_pfl.data.label_counts import label_counts


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  alpha: float = 0.5  # 1 is FedAvg
  graded: bool = False


FEDAVG_EQUIVALENT = {'alpha': 1.0}
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedRS."""
  if not 0 <= hp.alpha <= 1:
    raise bad_input(
      'hp.alpha',
      got=hp.alpha,
      expected='a number from 0 to 1; 1 is FedAvg',
      cause='a percentage: it scales the logits of absent classes',
    )

  def local_update(server, client, data, rng):
    counts = label_counts(data, task.num_classes)
    params, info = local_training.fit(
      objective(task, scales(counts, hp.alpha, hp.graded)),
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
  return (Stage('fedrs', hp.train.rounds, algorithm),)


def scales(counts: Array, alpha: float, graded: bool) -> Array:
  """Return a_c [Y] of a client with `counts` [Y] examples of the classes."""
  if graded:
    share = counts / jnp.maximum(counts.max(), 1)
  else:
    share = (counts > 0).astype(float)
  return alpha + (1 - alpha) * share


def objective(task: Task, scale: Array) -> local_training.Loss:
  """Return the cross-entropy of scaled logits."""

  def loss(params, batch, rng):
    logits = task.train_outputs(params, batch, rng).logits
    return losses.masked_cross_entropy(scale * logits, batch)

  return loss

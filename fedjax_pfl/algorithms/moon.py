"""MOON (Li, He and Song 2021): features near the global model's, not the old.

  w_i <- SGD_tau(v -> L_i(v) + mu mean_b l_b(v))     for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i                   a_i = 1 or n_i

            exp(cos(z, z_glob) / T)
  l = -log ------------------------------------------------
            exp(cos(z, z_glob) / T) + exp(cos(z, z_prev) / T)

z are the features under v, of the forward pass that gives the logits; z_glob
those under w, z_prev those under the model with which the client ended its
last round, both without gradient. Before its first round a client has no such
model, and l is 0. It keeps one model, however long ago it took part.

`loss` and `losses` hold the whole objective, `cross_entropies` L_i alone and
`contrasts` the mean of l. Personalisation is without the term.

Differs from the paper: no projection head, z is the input of the model's last
layer (the default of NIID-Bench); the weights a_i are 1 by default. In the
paper's code a client that is late begins with the initial model as its last.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Params, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  mu: float = 1.0  # 0 is FedAvg
  temperature: float = 0.5  # T


FEDAVG_EQUIVALENT = {'mu': 0.0}
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


class Client(NamedTuple):
  params: Params  # after its last local training
  has_trained: Array  # [] bool


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of MOON."""
  _check(hp)

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      objective(task, server.params, client, hp.mu, hp.temperature),
      server.params,
      data,
      rng,
      tx=hp.train.sgd(server.round),
      batching=hp.train.batching(task),
    )
    return Client(params, jnp.array(True)), params, info.metrics()

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: Client(
      server.params, jnp.array(False)
    ),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, server.params, data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
    global_model=lambda server: server.params,
  )
  return (Stage('moon', hp.train.rounds, algorithm),)


def objective(
  task: Task, anchor: Params, client: Client, mu: float, temperature: float
) -> local_training.Loss:
  """Return v -> L(v) + mu mean_b l_b(v), which reports both beside it.

  Three forward passes; the gradient runs through one of them.
  """

  def loss(params, batch, rng):
    outputs = task.train_outputs(params, batch, rng)
    near, far = (
      cosine(
        outputs.features,
        lax.stop_gradient(task.features(other, batch.x, batch.mask)),
      )
      for other in (anchor, client.params)
    )
    # -log(e^(near/T) / (e^(near/T) + e^(far/T)))
    contrasts = jax.nn.softplus((far - near) / temperature)  # [B]
    contrast = jnp.where(
      client.has_trained, losses.masked_mean(contrasts, batch), 0.0
    )
    cross_entropy = losses.masked_cross_entropy(outputs.logits, batch)
    return cross_entropy + mu * contrast, {
      'cross_entropies': cross_entropy,
      'contrasts': contrast,
    }

  return loss


def cosine(u: Array, v: Array) -> Array:
  """Return <u, v> / max(|u| |v|, 1e-8) of the rows: [B].

  Rows of zeros, all that dead ReLUs leave, have cosine 0 and no NaN.
  """
  return jnp.sum(u * v, -1) / jnp.maximum(_norm(u) * _norm(v), 1e-8)


def _norm(rows):
  """Return |row|, with gradient 0 at 0."""
  square = jnp.sum(rows**2, -1)
  is_zero = square == 0
  return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, square)))


def _check(hp):
  if not 0 <= hp.mu < math.inf:
    raise bad_input(
      'hp.mu',
      got=hp.mu,
      expected='a number, 0 or more; 0 is FedAvg',
      cause='a sign: it would push features away from the global ones',
    )
  if not 0 < hp.temperature < math.inf:
    raise bad_input(
      'hp.temperature',
      got=hp.temperature,
      expected='a number above 0; 0.5 in the paper',
      cause='0 to switch the contrast off: that is hp.mu=0',
    )

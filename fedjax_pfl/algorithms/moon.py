"""MOON (Li, He and Song 2021): contrast with the global and the old features.

  w_i <- SGD_tau(v -> L_i(v) + mu mean_b l_b(v))     for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i                   a_i = 1 or n_i

            exp(cos(z, z_glob) / T)
  l = -log ------------------------------------------------
            exp(cos(z, z_glob) / T) + exp(cos(z, z_prev) / T)

z are the features under v, of the forward pass that gives the logits; z_glob
those under w, z_prev those under the model with which the client ended its
last round, however long ago; both without gradient. In a client's first round
l is 0, as it has no such model.

The metrics `loss` and `losses` are of the objective, `cross_entropies` of L_i
and `contrasts` of the mean of l. Fine-tuning is without the term.

New client: it has the global model, and fine-tunes it as all others do; z_prev
matters in rounds alone.

Differs from the paper: no projection head, z is the input of the model's last
layer (the default of NIID-Bench); the weights a_i are 1 by default. In the
paper's code a client whose first round is not round 0 has z_prev under its own
initial model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  mu: float = field(1.0, rules.at_least(0), traced=True)  # 0 is FedAvg
  temperature: float = field(  # T
    0.5, rules.above(0, '0 to switch it off: that is hp.mu=0'), traced=True
  )


FAMILY, PAPER = 'regularised', 'arxiv.org/abs/2103.16257'
FEDAVG_EQUIVALENT = {'mu': 0.0}
PRIVATE_LEAVES = ()


class Client(NamedTuple):
  params: Params  # after its last local training
  has_trained: Array  # [] bool


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of MOON."""

  def local_update(server, client, data, rng):
    loss = objective(task, server.params, client, hp.mu, hp.temperature)
    start, clock = server.params, server.round
    params, info = hp.train.fit(task, start, data, rng, clock, loss)
    return Client(params, jnp.array(True)), params, info.metrics()

  def init_client(server, data, rng):
    return Client(server.params, has_trained=jnp.array(False))

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(init_client=init_client)
  return (Stage('moon', hp.train.rounds, algorithm),)


def objective(
  task: Task, anchor: Params, client: Client, mu: float, temperature: float
) -> local_training.Loss:
  """Return v -> L(v) + mu mean_b l_b(v), which reports both beside it.

  Three forward passes; the gradient runs through one of them.
  """

  def loss(params, batch, rng):
    outputs = task.train_outputs(params, batch, rng)
    to_global, to_previous = (
      cosine(
        outputs.features,
        lax.stop_gradient(task.features(other, batch.x, batch.mask)),
      )
      for other in (anchor, client.params)
    )
    # l = log(1 + exp((cos(z, z_prev) - cos(z, z_glob)) / T))
    contrasts = jax.nn.softplus((to_previous - to_global) / temperature)  # [B]
    contrast = jnp.where(
      client.has_trained, losses.masked_mean(contrasts, batch), 0.0
    )
    cross_entropy = losses.batch_loss(outputs.logits, batch, task.example_loss)
    reports = {'cross_entropies': cross_entropy, 'contrasts': contrast}
    return cross_entropy + mu * contrast, reports

  return loss


def cosine(u: Array, v: Array) -> Array:
  """Return <u, v> / max(|u| |v|, 1e-8) of the rows: [B].

  The cosine of a row of zeros, the output of dead ReLUs, is 0 and not NaN.
  """
  product = jnp.sum(u * v, -1)
  return product / jnp.maximum(losses.norm(u) * losses.norm(v), 1e-8)

"""FedNTD (Lee et al. 2022): clients keep what the global model knows.

  w_i <- SGD_tau(v -> CE(v) + beta T^2 mean_b KL(q_b || p_b))     i in S, from w
  w   <- sum_i a_i w_i / sum_i a_i                               a_i = 1 or n_i

q_b and p_b are softmax(z / T) under w and v over all classes but the true
one. q has no gradient.

The metrics `loss` and `losses` are of the objective, `cross_entropies` of CE.
Fine-tuning is without the term.

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: the weights a_i are 1 by default, n_i there. T is 1 by
default there, 3 in a class of the public code, whose configuration says 1.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Task


class HParams(global_model.HParams):
  beta: float = field(1.0, rules.at_least(0), traced=True)  # 0 is FedAvg
  temperature: float = field(  # T
    1.0, rules.above(0, '0 to switch it off: that is hp.beta=0'), traced=True
  )


FAMILY, PAPER = 'regularised', 'arxiv.org/abs/2106.03097'
FEDAVG_EQUIVALENT = {'beta': 0.0}
NEEDS_CLASSES = True
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedNTD."""

  def loss_of(server, client, data):
    def loss(params, batch, rng):
      logits = task.train_outputs(params, batch, rng).logits
      taught = task.logits(server.params, batch.x, batch.mask)
      p = not_true(logits / hp.temperature, batch.y)
      q = not_true(lax.stop_gradient(taught) / hp.temperature, batch.y)
      apart = jnp.sum(jnp.exp(q) * jnp.where(jnp.isinf(q), 0, q - p), axis=1)
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      distance = losses.masked_mean(apart, batch)
      total = cross_entropy + hp.beta * hp.temperature**2 * distance
      return total, {'cross_entropies': cross_entropy}

    return loss

  update = global_model.sgd_update(task, hp, loss_of)
  algorithm = global_model.federated_averaging(task, hp, update)
  return (Stage('fedntd', hp.train.rounds, algorithm),)


def not_true(logits: Array, y: Array) -> Array:
  """Return the log of the softmax over the classes that are not y: [B, Y].

  The true class has -inf.
  """
  is_true = jax.nn.one_hot(y, logits.shape[1], dtype=bool)
  return jax.nn.log_softmax(jnp.where(is_true, -jnp.inf, logits), axis=1)

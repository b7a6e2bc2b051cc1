"""FedRS (Li and Zhan 2021): a restricted softmax for absent classes.

  w_i <- SGD_tau(CE on the logits a_c z_c; data of client i)   i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i                             a_i = 1 or n_i

  a_c = 1 if the client has training examples of class c, else alpha
  a_c = alpha + (1 - alpha) n_c / max n          graded; n_c examples of class c

The logit is scaled with its bias. Evaluation and fine-tuning use the logits
unscaled.

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: momentum 0.9, and weights a_i that are 1 by default.
`graded` is what the authors' later code does; its head has no bias there.
"""

import jax.numpy as jnp

from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Task
from fedjax_pfl.data.client_data import label_counts


class HParams(global_model.HParams):
  alpha: float = field(0.5, rules.share(), traced=True)  # 1 is FedAvg
  graded: bool = False


FAMILY, PAPER = 'global', 'doi.org/10.1145/3447548.3467254'
FEDAVG_EQUIVALENT = {'alpha': 1.0}
NEEDS_CLASSES = True
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedRS."""
  rules.check_cross_entropy(task, 'FedRS')

  def loss_of(server, client, data):
    counts = label_counts(data, task.num_classes)
    return objective(task, scales(counts, hp.alpha, hp.graded))

  update = global_model.sgd_update(task, hp, loss_of)
  algorithm = global_model.federated_averaging(task, hp, update)
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

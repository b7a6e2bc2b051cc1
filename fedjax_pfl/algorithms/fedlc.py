"""FedLC (Zhang et al. 2022): logits calibrated by how rare a class is.

  w_i <- SGD_tau(CE on the logits z_c - tau n_c^(-1/4); data of client i)
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i, i in the cohort

n_c is the number of the client's training examples of class c. Classes without
an example are left out of its softmax, so that the loss of a client with one
class is 0 and only weight decay changes its model. Evaluation and fine-tuning
use the logits uncalibrated.

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: the true class is in the denominator of the softmax.
Without it the loss has no lower bound, and every public code keeps it. The
weights a_i are 1 by default; tau is not given in the paper.
"""

import jax.numpy as jnp

from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Task
from fedjax_pfl.data.client_data import label_counts

EXCLUDED = -1e9  # not -inf: a padded row of such a class would give 0 * inf


class HParams(global_model.HParams):
  tau: float = field(1.0, rules.at_least(0), traced=True)


FAMILY, PAPER = 'global', 'arxiv.org/abs/2209.00189'
FEDAVG_EQUIVALENT = None  # tau = 0, but only if all clients have all classes
NEEDS_CLASSES = True
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedLC."""
  rules.check_cross_entropy(task, 'FedLC')

  def loss_of(server, client, data):
    return objective(task, label_counts(data, task.num_classes), hp.tau)

  update = global_model.sgd_update(task, hp, loss_of)
  algorithm = global_model.federated_averaging(task, hp, update)
  return (Stage('fedlc', hp.train.rounds, algorithm),)


def objective(task: Task, counts: Array, tau: float) -> local_training.Loss:
  """Return the cross-entropy of calibrated logits; `counts` are [Y]."""
  margin = tau * jnp.maximum(counts, 1) ** -0.25  # [Y]

  def loss(params, batch, rng):
    logits = task.train_outputs(params, batch, rng).logits
    calibrated = jnp.where(counts > 0, logits - margin, EXCLUDED)
    return losses.masked_cross_entropy(calibrated, batch)

  return loss

"""FedProx (Li et al. 2020): local training with a pull to the global model.

  w_i <- SGD_tau(v -> L_i(v) + mu/2 |v - w|^2)  for i in the cohort S, from w
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

|.|^2 runs over all tensors; its gradient mu (v - w) enters the momentum buffer
together with that of L_i. With trainable = 'body' this is FedProx + FedBABU:
the head stays random, is not uploaded, and its term is zero.

With distance = 'norm' the term is mu sum_t |v_t - w_t|, not squared, as in the
public code of SuPerFed: its pull has the size mu for every tensor t.

The metrics `loss` and `losses` are of the objective, `cross_entropies` of L_i.
The view 'finetuned' is trained without the term; 'local_update', the FedProx-LU
of the SuPerFed paper, for the same epochs with it, where w is the final model.

New client: it has the global model, and trains it further without the term or
with it, as all others do.

Differs from the paper: there a client solves the local problem inexactly, for
as long as it can; here every client runs tau epochs of SGD, as in the FedBABU
paper (mu = 0.01). The public code of that paper has this local step but no
program that runs it, and mu = 0.01 alone does not explain its printed numbers.
"""

from fedjax_pfl.client import global_model, local_training, personalization
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import Params, Task

DISTANCES = {
  'squared': lambda tree, anchor: 0.5 * losses.sum_squares(tree, anchor),
  'norm': losses.sum_norms,
}


class HParams(global_model.HParams):
  mu: float = field(  # 0 is FedAvg, or FedBABU
    0.01, rules.at_least(0), traced=True
  )
  trainable: str = 'full'  # 'body': FedProx + FedBABU
  distance: str = field(  # or 'norm'
    'squared', rules.one_of(DISTANCES, 'what mu is a factor of')
  )


FAMILY, PAPER = 'regularised', 'arxiv.org/abs/1812.06127'
FEDAVG_EQUIVALENT = {'mu': 0.0}
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedProx."""
  part = part_mask(task, hp.trainable, 'hp.trainable')

  def loss_of(server, client, data):
    return objective(task, server.params, hp.mu, hp.distance)

  def views(server, client, data, rng):
    args = task, server.params, data, rng, hp.finetune
    loss = loss_of(server, client, data)
    updated = personalization.finetune(*args, loss)['finetuned']
    return {**personalization.views(*args), 'local_update': updated}

  algorithm = global_model.federated_averaging(
    task, hp, global_model.sgd_update(task, hp, loss_of, part=part)
  )._replace(personalize=views)
  return (Stage('fedprox', hp.train.rounds, algorithm),)


def objective(
  task: Task, anchor: Params, mu: float, distance: str = 'squared'
) -> local_training.Loss:
  """Return v -> L(v) + mu D(v, anchor), with L among the metrics."""
  measure = DISTANCES[distance]
  return losses.with_term(task.loss, lambda v: mu * measure(v, anchor))

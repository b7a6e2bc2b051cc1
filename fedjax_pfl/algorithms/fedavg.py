"""FedAvg (McMahan et al. 2017): clients train, the server averages.

  w_i <- SGD_tau(w; data of client i)           for i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: momentum 0.9, as in all runs of the FedBABU paper, with
a buffer that starts anew in every round; the weights a_i are 1 by default, as
in that paper's public code (n_i / n in its text; the same when balanced).

With rho = head_lr_ratio the head learns at rho eta, the body at eta, and both
are averaged (FedBABU paper, table 23); rho = 0 trains FedBABU's body.

The view 'local_update' is the FedAvg-LU of the SuPerFed paper, which is the
view 'finetuned'.
"""

import optax

from fedjax_pfl.client import global_model, personalization
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Task


class HParams(global_model.HParams):
  head_lr_ratio: float = field(1.0, rules.at_least(0), traced=True)  # rho


FAMILY, PAPER = 'global', 'arxiv.org/abs/1602.05629'
FEDAVG_EQUIVALENT = {'head_lr_ratio': 1.0}
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAvg."""
  train, ratio = hp.train, hp.head_lr_ratio
  of_head = train._replace(
    learning_rate=lambda clock: ratio * train.learning_rate(clock)
  )

  def by_part(clock):
    by_head = {False: train.sgd(clock), True: of_head.sgd(clock)}
    return optax.partition(by_head, task.is_head)

  def views(server, client, data, rng):
    models = personalization.views(task, server.params, data, rng, hp.finetune)
    return {**models, 'local_update': models['finetuned']}

  tx_fn = train.sgd if rules.equals(ratio, 1) else by_part
  algorithm = global_model.federated_averaging(
    task, hp, global_model.sgd_update(task, hp, tx_fn=tx_fn)
  )._replace(personalize=views)
  return (Stage('fedavg', train.rounds, algorithm),)

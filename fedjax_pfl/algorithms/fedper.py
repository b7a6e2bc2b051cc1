"""FedPer (Arivazhagan et al. 2019): a common body, and a head for each client.

  (b_i, h_i) <- SGD_tau((b, h_i); data of client i)   for i in the cohort S
  b          <- sum_i a_i b_i / sum_i a_i             a_i = 1 or n_i

Body and head are trained together. A client keeps its head h_i between the
rounds in which it takes part; before its first one it has the initial head,
which is the same for all clients.

protocol 'released': the public code of the FedBABU paper, below.

New client: it trains (b, h) for one round, of which nothing is sent, and keeps
its head h_i. With protocol 'released' it has b and h, as all others.

Differs from the paper: fine-tuning of body and head before evaluation, momentum
0.9 with a buffer that starts anew in every round, and weights a_i that are 1 by
default, as in all runs of the FedBABU paper.
"""

from typing import NamedTuple

from fedjax_pfl.client import global_model, local_training, personalization
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import Mask, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  shared: str = 'body'  # 'full' is FedAvg
  protocol: str = 'paper'  # or 'released'


RULES = {'protocol': rules.protocol()}
FEDAVG_EQUIVALENT = {'shared': 'full'}
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedPer."""
  rules.check(hp, RULES)
  is_released = hp.protocol == 'released'
  algorithm = released_algorithm if is_released else paper_algorithm
  body = part_mask(task, hp.shared)
  return (Stage('fedper', hp.train.rounds, algorithm(task, hp, body)),)


def paper_algorithm(task: Task, hp: HParams, body: Mask) -> Algorithm:
  """Return FedPer with a head for each client, as in the paper."""
  head = trees.invert(body)

  def local_update(down, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      trees.combine(client, down.params),  # b under h_i
      data,
      rng,
      tx=hp.train.sgd(down.round),
      batching=hp.train.batching(task),
    )
    client, upload = trees.select(params, head), trees.select(params, body)
    return client, upload, info.metrics()

  def views(server, client, data, rng):
    params = trees.combine(client, server.params)
    return personalization.views(task, params, data, rng, hp.finetune)

  return global_model.federated_averaging(
    task, hp.train, hp.finetune, local_update
  )._replace(
    init_client=lambda server, data, rng: trees.select(server.params, head),
    download=lambda server, client: server._replace(
      params=trees.select(server.params, body)
    ),
    personalize=views,
    global_model=None,
  )


# ---- The public code of the FedBABU paper ------------------------------------


def released_algorithm(task: Task, hp: HParams, body: Mask) -> Algorithm:
  """Return FedPer that discards the heads: FedBABU with a trained head.

    (b_i, h_i) <- SGD_tau((b, h); data of client i)   for i in the cohort S
    b          <- sum_i a_i b_i / sum_i a_i

  Local training, fine-tuning and evaluation begin with the initial head h.
  """

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=hp.train.sgd(server.round),
      batching=hp.train.batching(task),
    )
    return client, trees.select(params, body), info.metrics()

  return global_model.federated_averaging(
    task, hp.train, hp.finetune, local_update
  )._replace(global_model=None)

"""FedPer (Arivazhagan et al. 2019): a common body under heads of one's own.

  (b_i, h_i) <- SGD_tau((b, h_i); data of client i)   for i in the cohort S
  b          <- sum_i a_i b_i / sum_i a_i             a_i = 1 or n_i

Body and head are trained together; the head never leaves its client and is
there again when the client next takes part. A client that never took part has
the initial head, which is the same for all.

protocol 'paper' is that. 'released' is the FedBABU paper's public code: heads
are thrown away after each round, so that every participation, fine-tuning and
test begins with the initial head; clients keep nothing. It is FedBABU with a
head that may move inside a round.

Differs from the paper: full fine-tuning before the test, momentum 0.9 with a
buffer that starts anew in every round, and weights a_i that are 1 by default,
as in all runs of the FedBABU paper.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.types import Array, Params, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  shared: str = 'body'  # 'full' is FedAvg
  protocol: str = 'paper'  # or 'released'


FEDAVG_EQUIVALENT = {'shared': 'full'}
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


class Server(NamedTuple):
  round: Array
  params: Params  # the common body and the initial head


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedPer."""
  check_protocol(hp.protocol)
  shared = personalization.part_mask(task, hp.shared)
  kept = trees.invert(shared)
  if hp.protocol == 'released':
    kept = trees.invert(trees.everything(shared))

  def download(server, client):
    return Server(server.round, trees.select(server.params, trees.invert(kept)))

  def local_update(down, head, data, rng):
    params, info = local_training.fit(
      task.loss,
      trees.combine(head, down.params),
      data,
      rng,
      tx=hp.train.sgd(down.round),
      batching=hp.train.batching(task),
    )
    head = trees.select(params, kept)
    return head, trees.select(params, shared), info.metrics()

  def aggregate(server, bodies, counts):
    mean = trees.weighted_mean(bodies, hp.train.weights(counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: trees.select(server.params, kept),
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, trees.combine(client, server.params), data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
  )
  return (Stage('fedper', hp.train.rounds, algorithm),)

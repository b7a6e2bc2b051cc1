"""FedBABU (Oh, Kim and Yun 2022): the head stays random, the body travels.

  h   = random, the same for all clients, never trained
  b_i <- SGD_tau(b; data of client i, head h)   for i in the cohort S
  b   <- sum_i a_i b_i / sum_i a_i              a_i = 1 or n_i

Gradients pass through the fixed head. Its bias is random and fixed, too. After
the rounds a client fine-tunes body and head (part 'full'), or one of them.

Differs from the paper: the weights a_i are 1 by default, as in its public code
(n_i / n in its text; the same when balanced); the model of the last round is
evaluated, as its text says (its public code takes the best on the test set).

Tables 14 and 15 train fewer layers: trainable='conv1+bn1' is their Conv1,
'conv1+bn1+conv2+bn2' Conv12, 'body' Conv1234, 'full' FedAvg. Their printed
column Conv123 is in fact a second run of FedAvg (a condition of the code of
that time was always true): to reproduce the print, take trainable='full'.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.types import Array, Params, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  trainable: str = 'body'  # or layers: 'conv1+bn1'; 'full' is FedAvg


FEDAVG_EQUIVALENT = {'trainable': 'full'}
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


class Server(NamedTuple):
  round: Array
  params: Params  # body and the fixed head


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedBABU."""
  body = personalization.part_mask(task, hp.trainable, 'hp.trainable')

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=local_training.freeze_except(hp.train.sgd(server.round), body),
      batching=hp.train.batching(task),
    )
    return client, trees.select(params, body), info.metrics()

  def aggregate(server, bodies, counts):
    mean = trees.weighted_mean(bodies, hp.train.weights(counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

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
  return (Stage('fedbabu', hp.train.rounds, algorithm),)

"""FedBABU (Oh, Kim and Yun 2022): the head stays random, the body travels.

  h   = random, the same for all clients, never trained
  b_i <- SGD_tau(b; data of client i, head h)   for i in the cohort S
  b   <- sum_i a_i b_i / sum_i a_i              a_i = 1 or n_i

Gradients pass through the fixed head, whose bias is random and fixed, too
(`freeze_except` of client/optimisers.py).
After the rounds a client fine-tunes body and head, or one of them, as
`finetune.trainable` says.

finetune_from 'trained': as in PFLlib, a client keeps the b_i that it trained,
and fine-tunes that.

New client: it has b and h, and fine-tunes them as all others do.

Differs from the paper: the weights a_i are 1 by default, as in its public code
(n_i / n in its text; the same when balanced); the model of the last round is
evaluated, as in its text (its public code takes the best on the test set).

Tables 14 and 15 train fewer layers: trainable='conv1+bn1' is their Conv1,
'conv1+bn1+conv2+bn2' Conv12, 'body' Conv1234, 'full' FedAvg. Their printed
column Conv123 is a second run of FedAvg, because a condition in the code of
that time was always true: trainable='full' reproduces it.
"""

from fedjax_pfl.client import global_model, personalization
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.trees import combine, part_mask
from fedjax_pfl.core.types import Task


class HParams(global_model.HParams):
  trainable: str = 'body'  # or layers: 'conv1+bn1'; 'full' is FedAvg
  finetune_from: str = field(  # the b; or the b_i that a client 'trained'
    'global',
    rules.one_of(('global', 'trained'), 'a body that fine-tuning begins with'),
  )


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2106.06042'
FEDAVG_EQUIVALENT = {'trainable': 'full'}
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedBABU."""
  body = part_mask(task, hp.trainable, 'hp.trainable')
  update = global_model.sgd_update(task, hp, part=body)  # of b under h
  algorithm = global_model.federated_averaging(task, hp, update)
  if hp.finetune_from == 'trained':
    algorithm = with_trained_body(task, hp, algorithm)
  return (Stage('fedbabu', hp.train.rounds, algorithm),)


def with_trained_body(
  task: Task, hp: HParams, averaging: Algorithm
) -> Algorithm:
  """Return FedBABU whose clients keep b_i, and fine-tune it under h."""

  def local_update(server, client, data, rng):
    _, body, metrics = averaging.local_update(server, (), data, rng)
    return combine(body, server.params), body, metrics

  def personalize(server, client, data, rng):
    views = averaging.personalize(server, (), data, rng)
    own = personalization.finetune(task, client, data, rng, hp.finetune)
    return views | own

  return averaging._replace(
    init_client=lambda server, data, rng: server.params,
    local_update=local_update,
    personalize=personalize,
  )

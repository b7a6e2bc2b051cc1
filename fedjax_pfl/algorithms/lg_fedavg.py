"""LG-FedAvg (Liang et al. 2020): each client has its body, all share a head.

  b, h     <- FedAvg                            first stage, or a run before
  b_i      <- b                                 for all clients i
  b_i, h_i <- SGD_tau(b_i, h; data of client i) for i in the cohort S, eta fixed
  h        <- sum_i a_i h_i / sum_i a_i         a_i = 1 or n_i

Momentum begins anew in every round. The second stage has a quarter of the
first one's rounds.

Differs from the paper: begins with FedAvg's model, as in the FedBABU paper,
whose text fine-tunes body and head afterwards (view 'finetuned'). That paper's
printed tables do not: they take 'initial', of every client the round with the
best TEST accuracy (of which a run keeps the accuracies as `test_best`), and
average the heads of those models once more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Mask, Params, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  learning_rate: float = 1e-3  # eta of the second stage, all its rounds
  train_fedavg: bool = True  # False: begin with the model of another run


FEDAVG_EQUIVALENT = {'train_fedavg': True}  # in its first stage
PRIVATE_LEAVES = ('body',)  # in the second
SAME_CLIENTS_AS_START = True


class Server(NamedTuple):
  round: Array
  params: Params  # the shared part; the other one as new clients have it


def check_start(hp: HParams, start: str) -> None:
  """Refuse to begin without a FedAvg model, and with two of them."""
  if bool(start) != hp.train_fedavg:
    return
  raise bad_input(
    'init_from',
    got=start,
    expected='the directory of a FedAvg run, or hp.train_fedavg=True, which '
    'trains that model first; one of the two',
    choices=['init_from=RUN and hp.train_fedavg=False', 'hp.train_fedavg=True'],
    cause='LG-FedAvg without a FedAvg run, or with one more than it needs',
  )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return FedAvg and then LG-FedAvg, or the latter alone."""
  if not hp.learning_rate > 0:
    raise bad_input(
      'hp.learning_rate',
      got=hp.learning_rate,
      expected='a learning rate above 0',
      cause='a sign, or a zero too many',
    )
  steady = hp.train._replace(
    learning_rate=optax.constant_schedule(hp.learning_rate)
  )
  body = trees.invert(task.is_head)
  last = Stage(
    'lg_fedavg',
    -(-hp.train.rounds // 4),
    share_part(task, steady, hp.finetune, task.is_head),
    initialize=lambda server, clients, data: (
      server,
      copies(trees.select(server.params, body), data.count.shape[0]),
    ),
  )
  if not hp.train_fedavg:
    return (last,)
  all_parts = trees.everything(task.is_head)
  first = share_part(task, hp.train, hp.finetune, all_parts)
  return Stage('fedavg', hp.train.rounds, first), last


def copies(tree: Params, num_clients: int) -> Params:
  """Return the tree once for every client: [K, ...]."""
  return jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf, (num_clients, *leaf.shape)), tree
  )


def share_part(
  task: Task,
  train: local_training.LocalTraining,
  finetune: personalization.Finetuning,
  shared: Mask,
) -> Algorithm:
  """Return rounds that average one part; the rest stays with its client."""
  own = trees.invert(shared)

  def download(server, client):
    return Server(server.round, trees.select(server.params, shared))

  def local_update(down, client, data, rng):
    params, info = local_training.fit(
      task.loss,
      trees.combine(client, down.params),
      data,
      rng,
      tx=train.sgd(down.round),
      batching=train.batching(task),
    )
    kept, up = trees.select(params, own), trees.select(params, shared)
    return kept, up, info.metrics()

  def aggregate(server, parts, counts):
    mean = trees.weighted_mean(parts, train.weights(counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

  def views(server, client, data, rng):
    params = trees.combine(client, server.params)
    return personalization.views(task, params, data, rng, finetune)

  return Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: trees.select(server.params, own),
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    personalize=views,
    predict=personalization.make_predict(task),
  )

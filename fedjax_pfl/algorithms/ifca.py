"""IFCA (Ghosh et al. 2020): a client trains the one of M models that fits it.

  k_i <- argmin_k L_i(w_k)                  L_i over all training data, i in S
  w_i <- SGD_tau(w_{k_i}; data of client i)
  w_k <- sum_{i: k_i = k} a_i w_i / sum_{i: k_i = k} a_i     a_i = 1 or n_i

A client downloads M models and uploads one, with k_i. A model that no client
chose stays; the momentum of a `server_optimizer` moves it on. Also known as
HypCluster (Mansour et al. 2020). L_i is the task's loss, in batches of
`batch_size`; of equal losses the first model is taken.

Random models may all lose to one: then every client chooses that, and this is
FedAvg. The metric `cluster` shows k_i.

New client: it takes the model with the least loss on its training data, as all
others do, and fine-tunes it.

Differs from the paper: SGD has momentum. On FEMNIST the paper's clusters share
all layers but the last; here they share none, and begin with random models.
The public code for CIFAR-10 draws its models again until the first choices of
the clients are good enough; here they are drawn once. A start with a head, such
as a run, is refused: its M models would be equal.
"""

import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model, own_examples, personalization
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  clusters: int = field(  # M; 1 is FedAvg
    2, rules.count('models', 'a share of clients')
  )


FAMILY, PAPER = 'clusters', 'arxiv.org/abs/2006.04088'
FEDAVG_EQUIVALENT = None  # with one cluster, but for an axis of its models
PRIVATE_LEAVES = ()
NORM_STATISTICS = ('batch', 'running')  # a client has those of one model


class Up(NamedTuple):
  params: Params
  cluster: Array  # [] k_i


def check_start(hp: HParams, start: str) -> None:
  """Refuse a run: clients could not choose among M copies of its model."""
  if start and not start.endswith('.safetensors') and hp.clusters > 1:
    raise _equal(hp.clusters, start)


def _equal(number: int, start: str) -> BadInput:
  return bad_input(
    'init_from',
    got=start,
    expected=f"'': the {number} models have to begin apart",
    choices=['a .safetensors file without a head, which is drawn for each'],
  )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of IFCA."""

  def init_server(rng):
    keys = [jax.random.fold_in(rng, k) for k in range(1, hp.clusters)]
    models = [task.init(key) for key in (rng, *keys)]
    heads = [
      jax.tree.leaves(trees.select(model, task.is_head)) for model in models
    ]
    # By identity, which tracing has: what is drawn is a new array each time.
    if len(heads) > 1 and all(map(operator.is_, *heads[:2])):
      raise _equal(len(heads), 'a model with its head')
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return global_model.Server(jnp.zeros((), jnp.int32), stacked)  # [M, ...]

  def choose(models, data, rng):
    size = hp.train.batch_size
    values = own_examples.mean_losses(task, models, data, rng, size)
    cluster = jnp.argmin(values)
    return cluster, trees.gather(models, cluster)

  def local_update(down, client, data, rng):
    cluster, params = choose(down.params, data, rng)
    params, info = hp.train.fit(task, params, data, rng, down.round)
    return client, Up(params, cluster), {**info.metrics(), 'cluster': cluster}

  def aggregate(server, up, senders):
    models = senders.segment_mean(
      up.params, hp.train.weights(senders.counts), up.cluster, server.params
    )
    return server._replace(round=server.round + 1, params=models)

  algorithm = global_model.federated_averaging(task, hp, local_update)._replace(
    init_server=init_server,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, choose(server.params, data, rng)[1], data, rng, hp.finetune
    ),
    global_model=None,
  )
  return (Stage('ifca', hp.train.rounds, algorithm),)

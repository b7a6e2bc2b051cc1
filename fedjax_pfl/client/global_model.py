"""Federated averaging: the algorithm of a server with one global model.

w_i <- local_update(w; data of client i)      for i in the cohort S
w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

Most methods are that, with another loss, another optimiser, or a part of w.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, dataclass_transform

import jax.numpy as jnp

from fedjax_pfl.client import personalization
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.algorithm import Algorithm, Senders, Up
from fedjax_pfl.core.records import field, record
from fedjax_pfl.core.types import Array, Mask, Params, Task


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@record('hp.')
class HParams:
  """The hyperparameters that every method has; a subclass is a record, too."""

  train: LocalTraining = LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()

  def __init_subclass__(cls):
    record('hp.')(cls)


class Server(NamedTuple):
  round: Array  # [] rounds so far
  params: Params


def count_round(server: Any, up: Up, senders: Senders) -> Any:
  """Return the server, which averages nothing, after another round."""
  return server._replace(round=server.round + 1)


def sgd_update(
  task: Task,
  hp: HParams,
  loss_fn: Callable | None = None,
  tx_fn: Callable | None = None,
  part: Mask | None = None,
) -> Callable:
  """Return the local update of the global model: SGD of its `train`.

  loss_fn: (server, client, data) -> the loss, instead of the task's.
  tx_fn: clock -> the optimiser, instead of SGD.
  part: is trained and uploaded, instead of all of the model.
  """
  tx_fn = tx_fn or hp.train.sgd

  def local_update(server, client, data, rng):
    loss = loss_fn(server, client, data) if loss_fn else task.loss
    clock = server.round
    params, info = hp.train.fit(
      task, server.params, data, rng, clock, loss, tx_fn(clock), part=part
    )
    if part is not None:
      params = trees.select(params, norm_stats.with_all(part))
    return client, params, info.metrics()

  return local_update


def federated_averaging(
  task: Task,
  hp: HParams,
  local_update: Callable | None = None,
  model_of: Callable | None = None,
) -> Algorithm:
  """Return the algorithm that averages what `local_update` uploads.

  By default that is `sgd_update`. A leaf that is not uploaded keeps its value
  on the server. Clients download its clock and model, keep nothing, and are
  evaluated by the global model in all views; or each by its own,
  model_of(server, client). A method replaces the functions in which it differs.
  """
  model = model_of or (lambda server, client: server.params)

  def aggregate(server, uploads, senders):
    mean = senders.mean(uploads, hp.train.weights(senders.counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

  return Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: (),
    # Nothing else that a method's server holds.
    download=lambda server, client: Server(server.round, model(server, client)),
    local_update=local_update or sgd_update(task, hp),
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, model(server, client), data, rng, hp.finetune
    ),
    predict=personalization.make_predict(task),
    global_model=None if model_of else lambda server: server.params,
  )


def averaging_of_part(
  task: Task,
  hp: HParams,
  shared: Mask,
  fit_fn: Callable | None = None,
  private: Mask | None = None,
) -> Algorithm:
  """Return the algorithm that averages one part; a client keeps the rest.

  fit_fn: (params, data, rng, clock) -> (params, FitInfo); by default local
  training of both parts together. The first private part is the server's.
  private: what a client keeps; by default all that is not shared. `fit_fn` has
  to freeze leaves of neither part, which are the server's.
  """
  private = trees.invert(shared) if private is None else private
  of_server = trees.invert(private)
  fit_fn = fit_fn or (lambda *args: hp.train.fit(task, *args))

  def whole(server, client):
    return trees.combine(client, server.params)

  def local_update(down, client, data, rng):
    params, info = fit_fn(whole(down, client), data, rng, down.round)
    client = trees.select(params, private)
    return client, trees.select(params, shared), info.metrics()

  return federated_averaging(task, hp, local_update, whole)._replace(
    init_client=lambda server, data, rng: trees.select(server.params, private),
    download=lambda server, client: server._replace(
      params=trees.select(server.params, of_server)
    ),
  )

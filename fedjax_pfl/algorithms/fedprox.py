"""FedProx (Li et al. 2020): local training is pulled back to the global model.

  w_i <- SGD_tau(v -> L_i(v) + mu/2 |v - w|^2)  for i in the cohort S, from w
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

|.|^2 runs over all tensors; its gradient mu (v - w) enters the momentum buffer
together with that of L_i. With trainable = 'body' this is FedProx + FedBABU:
the head stays random, travels nowhere, and its term is identically zero.

With distance = 'norm' the term is mu sum_t |v_t - w_t|, not squared, as in the
public code of SuPerFed: its pull has the size mu for every tensor t.

`loss` and `losses` hold the whole objective, `cross_entropies` L_i alone.
Fine-tuning is without the term; in 'local_update' (FedProx-LU, as the SuPerFed
paper compares it) the same epochs keep it, with w the final model.

Differs from the paper: it solves the local problem inexactly, for as long as a
client can; here every client runs tau epochs of SGD, as in the FedBABU paper
(mu = 0.01), whose public code has this local step but no program that runs it:
its printed numbers cannot be explained by mu = 0.01 alone.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task

DISTANCES = {
  'squared': lambda tree, anchor: 0.5 * losses.sum_squares(tree, anchor),
  'norm': losses.sum_norms,
}


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  mu: float = 0.01  # 0 is FedAvg, or FedBABU
  trainable: str = 'full'  # 'body': FedProx + FedBABU
  distance: str = 'squared'  # or 'norm'


FEDAVG_EQUIVALENT = {'mu': 0.0}
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedProx."""
  check_hyperparameters(hp)
  part = personalization.part_mask(task, hp.trainable)

  def local_update(server, client, data, rng):
    params, info = local_training.fit(
      objective(task, server.params, hp.mu, hp.distance),
      server.params,
      data,
      rng,
      tx=local_training.freeze_except(hp.train.sgd(server.round), part),
      batching=hp.train.batching(task),
    )
    return client, trees.select(params, part), info.metrics()

  def aggregate(server, parts, counts):
    mean = trees.weighted_mean(parts, hp.train.weights(counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: (),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: views(
      task, hp, server.params, data, rng
    ),
    predict=personalization.make_predict(task),
    global_model=lambda server: server.params,
  )
  return (Stage('fedprox', hp.train.rounds, algorithm),)


def objective(
  task: Task, anchor: Params, mu: float, distance: str = 'squared'
) -> local_training.Loss:
  """Return v -> L(v) + mu D(v, anchor), which reports L beside it."""

  def loss(params, batch, rng):
    cross_entropy = task.loss(params, batch, rng)
    total = cross_entropy + mu * DISTANCES[distance](params, anchor)
    return total, {'cross_entropies': cross_entropy}

  return loss


def views(
  task: Task, hp: HParams, params: Params, data: ClientData, rng: Key
) -> dict[str, personalization.View]:
  """Return the views of every global model, and the one that keeps the term."""
  loss = objective(task, params, hp.mu, hp.distance)
  updated = personalization.finetune(task, params, data, rng, hp.finetune, loss)
  return {
    **personalization.views(task, params, data, rng, hp.finetune),
    'local_update': updated['finetuned'],
  }


def check_hyperparameters(hp: HParams) -> None:
  """Refuse a pull the wrong way, and a distance that is not there."""
  if hp.mu < 0:
    raise bad_input(
      'hp.mu',
      got=hp.mu,
      expected='a number, 0 or more; 0 is FedAvg',
      cause='a sign: it would push clients apart',
    )
  if hp.distance not in DISTANCES:
    raise bad_input(
      'hp.distance',
      got=hp.distance,
      expected='what mu is a factor of',
      choices=DISTANCES,
      cause='a typing error',
    )

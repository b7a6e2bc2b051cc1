"""Per-FedAvg (Fallah, Mokhtari and Ozdaglar 2020): a model that adapts well.

  J times in each of tau epochs, on the next batches a and b of client i:
  m   <- mu m + grad L(w; a);   w' <- w - alpha m
  m   <- mu m + grad L(w'; b);  w  <- w - beta m
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

The first-order method of the FedBABU paper: inner and outer steps share one
momentum m, which begins anew in every round, and weight decay joins both
gradients. J = floor(batches / tau) + 1; where the batches run out, a new order
of them begins. alpha = eta(round). A client adapts by ONE plain step of
eta(round) on one batch of what it is handed, not augmented.

`second_order` takes the same batches, but the gradient through the inner step,
which has no momentum; m holds outer gradients alone, and only they decay:

  m   <- mu m + d/dw L(w - alpha grad L(w; a); b);   w <- w - beta m

Its step counts as four gradients: the inner, the outer, and two for the
product of the inner Hessian with a vector (3.9 in operations, 4convNet).

protocol 'released' has beta = 0.1 in all rounds, as the public code of the
FedBABU paper; 'paper' has beta = eta(round). The view 'adapted_twice' is that
code's: two steps with momentum mu, of eta(round), then of beta. (It took them
on the test images of a wrong client.)

Differs from the paper: the steps J and the shared momentum are those of the
FedBABU paper's public code, and so are the weights a_i, 1 by default. Never
FedAvg: with alpha = 0 it would still skip every other batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, Batch, ClientData, Params, PyTree, Task
from fedjax_pfl.data.batching import Batching

RELEASED_BETA = 0.1


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  protocol: str = 'paper'  # or 'released'
  beta: float | optax.Schedule | None = None  # None: that of the protocol
  second_order: bool = False


FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()


class Server(NamedTuple):
  round: Array
  params: Params


class MetaState(NamedTuple):
  momentum: Params
  undo: Params  # what leads back to w; 0 when there
  is_outer: Array  # [] whether the next step is


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of Per-FedAvg."""
  beta = outer_rate(hp)
  train = _second_order(task, hp, beta)
  if not hp.second_order:
    train = _first_order(task, hp, beta)

  def local_update(server, client, data, rng):
    params, metrics = train(server, data, rng)
    return client, params, metrics

  def aggregate(server, params, counts):
    mean = trees.weighted_mean(params, hp.train.weights(counts))
    return Server(server.round + 1, mean)

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: (),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'adapted': _adapt(task, hp, server, data, rng, None),
      'adapted_twice': _adapt(task, hp, server, data, rng, beta),
    },
    predict=task.logits,
    global_model=lambda server: server.params,
  )
  stage = Stage('per_fedavg', hp.train.rounds, algorithm)
  return (
    stage._replace(
      validate_clients=lambda d: check_counts(d, hp.train.batch_size)
    ),
  )


def outer_rate(hp: HParams) -> optax.Schedule:
  """Return beta(round)."""
  check_protocol(hp.protocol)
  if callable(hp.beta):
    return hp.beta
  if hp.beta is None and hp.protocol == 'paper':
    return hp.train.learning_rate
  beta = RELEASED_BETA if hp.beta is None else hp.beta
  if isinstance(beta, bool) or not isinstance(beta, int | float) or beta <= 0:
    raise bad_input(
      'hp.beta',
      got=beta,
      expected='a rate above 0, or None: that of the protocol',
      cause='a sign, or the momentum, which is train.momentum',
    )
  return optax.constant_schedule(beta)


def meta_sgd(
  alpha: Array, beta: Array, momentum: float
) -> optax.GradientTransformation:
  """Return the steps w' <- w - alpha m and w <- w - beta m in turn."""

  def init(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return MetaState(zeros, zeros, jnp.zeros((), bool))

  def update(grads, state, params=None):
    del params
    m = jax.tree.map(lambda m, g: momentum * m + g, state.momentum, grads)
    rate = jnp.where(state.is_outer, beta, alpha)
    updates = jax.tree.map(lambda undo, m: undo - rate * m, state.undo, m)
    away = jnp.where(state.is_outer, 0.0, alpha)
    undo = jax.tree.map(lambda m: away * m, m)
    return updates, MetaState(m, undo, ~state.is_outer)

  return optax.GradientTransformation(init, update)


def check_counts(data: ClientData, batch_size: int) -> None:
  """Refuse clients that have examples, but not two batches of them."""
  counts = np.asarray(data.count)
  counts = counts[counts > 0]
  few = counts <= batch_size
  if few.any():
    least = counts.min()
    smaller = [f'a batch_size of at most {least - 1}'] if least > 1 else []
    raise bad_input(
      'batch_size',
      got=f'{batch_size}, while {few.sum()} of {len(counts)} clients have so '
      f'many examples or fewer (the smallest has {least})',
      expected='two batches or more for every client that has examples: '
      'Per-FedAvg steps on one and looks at the next',
      choices=[*smaller, 'fewer clients', 'a more even partition'],
      cause='many clients, or a partition that leaves some with little',
    )


def _first_order(task, hp, beta):
  """Return (server, data, rng) -> (params, metrics): 2 J steps an epoch."""

  def train(server, data, rng):
    clock, decay = server.round, hp.train.weight_decay
    params, info = local_training.fit(
      task.loss,
      server.params,
      data,
      rng,
      tx=optax.chain(
        optax.add_decayed_weights(decay) if decay else optax.identity(),
        meta_sgd(hp.train.learning_rate(clock), beta(clock), hp.train.momentum),
      ),
      batching=hp.train.batching(task)._replace(
        steps=lambda batches: 2 * _meta_steps(batches, hp)
      ),
    )
    outer = info.losses[1::2]  # no epoch ends between the two
    loss = jnp.sum(outer) / jnp.maximum(info.num_steps // 2, 1)
    return params, {**info.metrics(), 'loss': loss}

  return train


def _second_order(task, hp, beta):
  """Return (server, data, rng) -> (params, metrics): J steps an epoch."""

  def train(server, data, rng):
    alpha = hp.train.learning_rate(server.round)

    def loss(params: Params, pair: Batch, rng) -> Array:
      a, b = (trees.gather(pair, place) for place in (0, 1))
      rngs = jax.random.split(rng)
      grads = jax.grad(task.loss)(params, a, rngs[0])
      adapted = jax.tree.map(lambda w, g: w - alpha * g, params, grads)
      return task.loss(adapted, b, rngs[1])

    params, info = local_training.fit(
      loss,
      server.params,
      data,
      rng,
      tx=hp.train._replace(learning_rate=beta).sgd(server.round),
      batching=hp.train.batching(task)._replace(
        steps=lambda batches: _meta_steps(batches, hp), batches_per_step=2
      ),
    )
    return params, {**info.metrics(), 'num_steps': 4 * info.num_steps}

  return train


def _meta_steps(batches, hp):
  return batches // hp.train.epochs + 1


def _adapt(task, hp, server, data, rng, beta) -> PyTree:
  """Return the model after one step of eta; after one of beta too, if given."""
  rate = hp.train.learning_rate(server.round)
  if beta is None:
    steps, tx = 1, optax.sgd(rate)
  else:
    # The rate of optax.sgd may follow its own count of steps.
    rates = jnp.stack([rate, beta(server.round)])
    steps, tx = (
      2,
      optax.sgd(lambda step: rates[step], hp.train.momentum or None),
    )
  params, _ = local_training.fit(
    task.loss,
    server.params,
    data,
    rng,
    tx=tx,
    batching=Batching(
      hp.finetune.batch_size,
      1,
      task.normalise,
      hp.finetune.shuffle,
      steps=lambda batches: steps,
    ),
  )
  return params

"""Per-FedAvg (Fallah, Mokhtari and Ozdaglar 2020): a model that adapts well.

  J times in each of tau epochs, on the next batches a and b of client i:
  m   <- mu m + grad L(w; a);   w' <- w - alpha m
  m   <- mu m + grad L(w'; b);  w  <- w - beta m
  w   <- sum_i a_i w_i / sum_i a_i              a_i = 1 or n_i

The first-order method of the FedBABU paper: inner and outer steps share one
momentum m, which begins anew in every round, and weight decay joins both
gradients. J = floor(batches / tau) + 1; where the batches run out, a new order
of them begins. alpha = beta = eta(round). A client adapts by ONE plain step of
eta(round) on one batch of the examples it is handed, not augmented: of
`finetune.batch_size`.

`second_order` differentiates through the inner step; protocol 'released' is the
public code of the FedBABU paper.

New client: it adapts w by its own step, as all others do.

Differs from the paper: the steps J and the shared momentum are those of the
FedBABU paper's public code, and so are the weights a_i, 1 by default. Never
FedAvg: with alpha = 0 it would still skip every other batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_pfl.client import global_model, local_training, optimisers
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Batch, ClientData, Params, Task
from fedjax_pfl.data.batching import Batching

RATE = rules.above(0)
BETA = RATE._replace(
  holds=lambda beta: callable(beta) or RATE.holds(beta),
  expected='a rate above 0',
).or_none('that of the protocol')


class HParams(global_model.HParams):
  protocol: str = field('paper', rules.protocol())  # or 'released'
  beta: float | optax.Schedule | None = field(  # None: that of the protocol
    None, BETA, traced=True
  )
  second_order: bool = False


FAMILY, PAPER = 'global', 'arxiv.org/abs/2002.07948'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()


class MetaState(NamedTuple):
  momentum: Params
  undo: Params  # the update from w' back to w; 0 at w
  is_outer: Array  # [] whether the next step is


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of Per-FedAvg."""
  rules.check_sgd(
    hp.train.optimizer, 'Per-FedAvg', 'its steps go forth and back'
  )
  beta = outer_rate(hp)
  fit = fit_second_order if hp.second_order else fit_first_order

  def local_update(server, client, data, rng):
    params, metrics = fit(task, hp, beta, server, data, rng)
    return client, params, metrics

  def views(server, client, data, rng):
    eta = hp.train.learning_rate(server.round)
    return {
      'initial': server.params,
      'adapted': adapt(task, hp, server.params, data, rng, optax.sgd(eta)),
      'adapted_twice': adapt_twice(task, hp, beta, server, data, rng),
    }

  algorithm = global_model.federated_averaging(task, hp, local_update)
  stage = Stage(
    'per_fedavg',
    hp.train.rounds,
    algorithm._replace(personalize=views),
    validate_clients=lambda data: check_counts(data, hp.train.batch_size),
  )
  return (stage,)


def outer_rate(hp: HParams) -> optax.Schedule:
  """Return beta(round): as given, or that of the protocol."""
  if hp.beta is None and hp.protocol == 'released':
    return optax.constant_schedule(RELEASED_BETA)
  if hp.beta is None:
    return hp.train.learning_rate
  if callable(hp.beta):
    return hp.beta
  return optax.constant_schedule(hp.beta)


def fit_first_order(task, hp, beta, server, data, rng):
  """Return w_i, after 2 J steps in each epoch, and metrics."""
  clock, decay = server.round, hp.train.weight_decay
  alpha, rate = (
    jnp.asarray(schedule(clock)) for schedule in (hp.train.learning_rate, beta)
  )
  clipped = decayed = optax.identity()
  if hp.train.clip_norm:
    clipped = optax.clip_by_global_norm(hp.train.clip_norm)
  if not rules.equals(decay, 0):
    decayed = optax.add_decayed_weights(decay)
  tx = optax.chain(clipped, decayed, meta_sgd(alpha, rate, hp.train.momentum))
  batching = hp.train.batching(task)._replace(
    steps=lambda batches: 2 * meta_steps(batches, hp), steps_together=2
  )
  params, info = hp.train.fit(
    task, server.params, data, rng, clock, tx=tx, batching=batching
  )
  outer = info.losses[1::2]  # an epoch has an even number of steps
  loss = jnp.sum(outer) / jnp.maximum(info.num_steps // 2, 1)
  return params, {**info.metrics(), 'loss': loss}


def meta_steps(batches, hp: HParams):
  """Return J of a client with so many batches."""
  return batches // hp.train.epochs + 1


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


def adapt(task, hp, params, data, rng, tx, num_steps=1):
  """Return params after steps on batches that are not augmented."""
  size, shuffle = hp.finetune.batch_size, hp.finetune.shuffle
  batching = Batching(size, 1, task.normalise, shuffle, lambda _: num_steps)
  params, _ = local_training.fit(
    task.loss, params, data, rng, tx=tx, batching=batching
  )
  return params


def check_counts(data: ClientData, batch_size: int) -> None:
  """Refuse clients that have examples, but not two batches of them."""
  counts = np.asarray(data.count)
  counts = counts[counts > 0]
  too_small = counts <= batch_size
  if too_small.any():
    smallest = counts.min()
    choices = ['fewer clients', 'a more even partition']
    if smallest > 1:
      choices.insert(0, f'a batch_size of at most {smallest - 1}')
    raise bad_input(
      'batch_size',
      got=f'{batch_size}, while {too_small.sum()} of {len(counts)} clients '
      f'have so many examples or fewer (the smallest has {smallest})',
      expected='two batches or more for every client that has examples: '
      'Per-FedAvg steps on one and looks at the next',
      choices=choices,
    )


# ---- The second order --------------------------------------------------------


def fit_second_order(task, hp, beta, server, data, rng):
  """Return w_i, after J steps in each epoch, and metrics.

    m   <- mu m + d/dw L(w - alpha grad L(w; a); b);   w <- w - beta m

  on the same batches a and b. The inner step has no momentum; m holds outer
  gradients alone, and weight decay joins only them. A step counts as four
  gradients: the inner, the outer, and two for the product of the inner Hessian
  with a vector (3.9 in operations, 4convNet).
  """
  alpha = hp.train.learning_rate(server.round)

  def loss(params: Params, pair: Batch, rng) -> Array:
    a, b = (trees.gather(pair, number) for number in (0, 1))
    rngs = jax.random.split(rng)
    grads = jax.grad(task.loss)(params, a, rngs[0])
    adapted = jax.tree.map(lambda w, g: w - alpha * g, params, grads)
    adapted = norm_stats.taken_from(params, adapted)  # move by b alone
    return task.loss(adapted, b, rngs[1])

  outer = hp.train._replace(learning_rate=beta)
  batching = outer.batching(task)._replace(
    steps=lambda batches: meta_steps(batches, hp), batches_per_step=2
  )
  params, info = outer.fit(
    task, server.params, data, rng, server.round, loss, batching=batching
  )
  return params, {**info.metrics(), 'num_steps': 4 * info.num_steps}


# ---- The public code of the FedBABU paper ------------------------------------

RELEASED_BETA = 0.1  # in all rounds


def adapt_twice(task, hp, beta, server, data, rng):
  """Return w after two steps with momentum mu: of eta(round), then of beta.

  The code took them on the test images of another client.
  """
  clock = server.round
  rates = jnp.stack([hp.train.learning_rate(clock), beta(clock)])
  # optax.sgd counts its own steps.
  sgd = optimisers.sgd(lambda step: rates[step], hp.train.momentum)
  return adapt(task, hp, server.params, data, rng, sgd, num_steps=2)

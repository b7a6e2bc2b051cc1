"""APFL (Deng et al. 2020): each client mixes the global and a private model.

  m_i     =  alpha_i v_i + (1 - alpha_i) w_i             weights, not logits
  w_i     <- w_i - eta grad L_i(w_i)                     w_i from w each round
  v_i     <- v_i - eta alpha_i grad L_i(m_i)             for i in the cohort S
  alpha_i <- clip(alpha_i - eta <v_i - w_i, grad L_i(m_i)>, 0, 1)
  w       <- sum_i a_i w_i / sum_i a_i                   a_i = 1 or n_i

All right sides are those before the step, on one batch. Momentum is that of
`train`, separate for w and v; alpha has none. A client keeps v_i, which begins
as w, and alpha_i; both change only in rounds in which it takes part. Only w_i
is uploaded, and v_i has no effect on it: the global model is FedAvg's. The view
'personal' mixes v_i with the newest w.

order 'sequential': w_i steps first, as in the authors' later code. That mixes
logits, and adapts alpha_i with a penalty; here it is as above.
protocol 'released': APFL in the last public code of SuPerFed.
protocol 'pfllib': that of PFLlib, which trains v_i alone; m_i takes its place.

New client: v_i begins as w and alpha_i as for all; both learn for one round,
of which nothing is sent. The view 'personal' mixes v_i with w.

Differs from the paper: SGD with momentum by default; whole epochs of batches;
the weights a_i. The metrics `losses` are L_i(w_i), `mixed_losses` L_i(m_i) and
`alphas` alpha_i, each before the step.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import global_model, local_training, optimisers
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Mask, Params, Task

ALPHA = {'paper': 0.5, 'released': 0.25, 'pfllib': 1.0}
WAY = 'a way in which a step treats the mixture'


class HParams(global_model.HParams):
  alpha: float | None = field(  # first; None: 0.5, released 0.25, pfllib 1
    None, rules.share().or_none('that of the protocol'), traced=True
  )
  adapt: str = field(  # paper: or of a round the 'first_step'; 'never'
    'every_step', rules.one_of(('every_step', 'first_step', 'never'), WAY)
  )
  order: str = field(  # paper: or 'sequential'
    'simultaneous', rules.one_of(('simultaneous', 'sequential'), WAY)
  )
  protocol: str = field(  # or 'released', 'pfllib'
    'paper', rules.protocol(ALPHA)
  )
  private_decay: float = field(  # released: of v; w has that of train
    1e-4, rules.at_least(0), traced=True
  )


PARTS = {
  'adapt': ('protocol', 'paper'),
  'order': ('protocol', 'paper'),
  'private_decay': ('protocol', 'released'),
}
FAMILY, PAPER = 'mixtures', 'arxiv.org/abs/2003.13461'
FEDAVG_EQUIVALENT = {}  # always
FEDAVG_WHERE = 'its global model'
PRIVATE_LEAVES = ('private', 'alpha')


class Client(NamedTuple):
  private: Params  # v; released: without the biases of kernels
  alpha: Array  # []


class Trained(NamedTuple):
  """What a client trains in a round."""

  shared: Params  # w_i
  private: Params  # v_i
  alpha: Array  # []
  turn: Array | tuple = ()  # [] in turns: 0. is that of w_i, 1. of the others


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of APFL."""
  alpha = ALPHA[hp.protocol] if hp.alpha is None else hp.alpha
  private, is_pfllib = trees.part_mask(task, 'full'), hp.protocol == 'pfllib'
  fit = fit_in_turns if hp.order == 'sequential' else fit_together
  if hp.protocol == 'released':
    hp, fit = hp._replace(adapt='never'), fit_together
    private = without_biases_of_kernels(task)
  elif is_pfllib:
    fit = fit_apart

  def local_update(server, client, data, rng):
    trained, info = fit(task, hp, server, client, data, rng)
    client = Client(trained.private, trained.alpha)
    num_steps = 2 * info.num_steps  # one of w and one of v
    return client, trained.shared, {**info.metrics(), 'num_steps': num_steps}

  algorithm = global_model.federated_averaging(task, hp, local_update)._replace(
    init_client=lambda server, data, rng: Client(
      trees.select(server.params, private), jnp.asarray(alpha, float)
    ),
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': client.private
      if is_pfllib
      else mix(client.private, server.params, client.alpha),
    },
  )
  return (Stage('apfl', hp.train.rounds, algorithm),)


def mix(private: Params, shared: Params, alpha: Array) -> Params:
  """Return alpha v + (1 - alpha) w, and w where v has holes.

  Running statistics of v are those of the mixture.
  """
  mixed = jax.tree.map(
    lambda v, w: w if v is None else alpha * v + (1 - alpha) * w,
    private,
    shared,
    is_leaf=lambda leaf: leaf is None,
  )
  return norm_stats.taken_from(private, mixed)


def fit_together(task, hp, server, client, data, rng):
  """Return w_i, v_i and alpha_i after steps of all three on every batch."""
  private, loss = hp.train, objective(task)
  if hp.protocol == 'released':
    private = private._replace(weight_decay=hp.private_decay)
    loss = objective(task, lambda v, w, alpha: mix(v, server.params, alpha))
  steps = {
    'w': hp.train.sgd(server.round),
    'v': private.sgd(server.round),
    'alpha': alpha_optimiser(hp, server.round),
  }
  trained = Trained(server.params, *client)
  tx = optax.partition(steps, Trained('w', 'v', 'alpha'))
  return hp.train.fit(task, trained, data, rng, server.round, loss, tx)


def objective(task: Task, model: Callable = mix) -> local_training.Loss:
  """Return L(w), with the gradients of L(w) for w and of L(m) for v, alpha.

  m is model(v, w, alpha).
  """

  def loss(tree, batch, rng):
    w = lax.stop_gradient(tree.shared)
    shared = task.loss(tree.shared, batch, rng)
    mixed = task.loss(model(tree.private, w, tree.alpha), batch, rng)
    # L(m) adds its gradient, but not its value: a sum would be no model's loss.
    value = shared + (mixed - lax.stop_gradient(mixed))
    return value, {'mixed_losses': mixed, 'alphas': tree.alpha}

  return loss


def alpha_optimiser(hp: HParams, clock: Array) -> optax.GradientTransformation:
  """Return SGD without momentum on [0, 1], in the steps that `adapt` has."""
  if hp.adapt == 'never':
    return optax.set_to_zero()
  into_unit_interval = optax.stateless_with_tree_map(
    lambda update, alpha: jnp.clip(alpha + update, 0, 1) - alpha
  )
  sgd = optax.chain(
    optax.sgd(hp.train.learning_rate(clock)), into_unit_interval
  )
  if hp.adapt == 'first_step':
    return optimisers.at_steps(sgd, lambda step: step == 0)
  return sgd


# ---- The order of the authors' later code: 'sequential' ----------------------


def fit_in_turns(task, hp, server, client, data, rng):
  """Return w_i, v_i and alpha_i after steps of w_i, then of v_i and alpha_i.

  Those of v_i and alpha_i use the new w_i on the same batch. The code adapts
  alpha_i in the first step of a round alone: adapt 'first_step'.
  """
  at_steps = optimisers.at_steps
  sgd, alpha = hp.train.sgd(server.round), alpha_optimiser(hp, server.round)
  steps = {
    'w': at_steps(sgd, lambda step: step % 2 == 0),
    'v': at_steps(sgd, lambda step: step % 2 == 1),
    'alpha': at_steps(alpha, lambda step: step % 2 == 1),
    'turn': optax.stateless_with_tree_map(lambda _, turn: 1 - 2 * turn),
  }
  start = Trained(server.params, *client, turn=jnp.zeros(()))
  tx = optax.partition(steps, Trained('w', 'v', 'alpha', 'turn'))
  batching = hp.train.batching(task)._replace(steps_per_batch=2)
  loss, clock = objective_in_turns(task), server.round
  trained, info = hp.train.fit(
    task, start, data, rng, clock, loss, tx, batching
  )
  shared, mixed = info.losses.reshape(-1, 2).T  # of every batch
  reports = {'mixed_losses': mixed, 'alphas': info.reports['alphas'][::2]}
  return trained, info._replace(
    num_steps=info.num_steps // 2, losses=shared, reports=reports
  )


def objective_in_turns(task: Task) -> local_training.Loss:
  """Return L of the model that has the step: w, or the mixture with it."""

  def loss(tree, batch, rng):
    w = lax.stop_gradient(tree.shared)
    mixed = mix(tree.private, w, tree.alpha)
    params = jax.tree.map(
      lambda m, w: jnp.where(tree.turn > 0, m, w), mixed, tree.shared
    )
    return task.loss(params, batch, rng), {'alphas': tree.alpha}

  return loss


# ---- PFLlib ------------------------------------------------------------------


def fit_apart(task, hp, server, client, data, rng):
  """Return the same of models that learn apart: v_i becomes m_i at the end.

    v_i     <- v_i - eta grad L_i(v_i)
    alpha_i <- clip(alpha_i - eta (<v_i - w_i, alpha_i grad L_i(v_i)
                    + (1 - alpha_i) grad L_i(w_i)> + 0.02 alpha_i), 0, 1)

  alpha_i after the step of v_i and w_i, with gradients before it.
  """
  sgd, rate = hp.train.sgd(server.round), hp.train.learning_rate(server.round)
  models = optax.partition(
    {'w': sgd, 'v': sgd, 'alpha': optax.set_to_zero()},
    Trained('w', 'v', 'alpha'),
  )

  def update(grads, state, tree):
    updates, state = models.update(grads, state, tree)
    new, alpha = optax.apply_updates(tree, updates), tree.alpha
    apart = jax.tree.map(jnp.subtract, new.private, new.shared)
    slope = mix(grads.private, grads.shared, alpha)
    step = optax.tree.vdot(apart, slope) + 0.02 * alpha
    alpha = jnp.clip(alpha - rate * step, 0, 1) - alpha
    return updates._replace(alpha=alpha), state

  trained, info = hp.train.fit(
    task,
    Trained(server.params, *client),
    data,
    rng,
    server.round,
    objective(task, lambda v, w, alpha: v),
    optax.GradientTransformation(models.init, update),
  )
  private = mix(trained.private, trained.shared, trained.alpha)
  return trained._replace(private=private), info


# ---- The last public code of SuPerFed ----------------------------------------
#
# What it calls APFL: alpha is constant, and w, not w_i, as the round began. The
# bias beside a kernel exists once: v_i has none, and that of w is used.
#
#   v_i <- v_i - eta (alpha grad L_i(alpha v_i + (1 - alpha) w) + decay v_i)


def without_biases_of_kernels(task: Task) -> Mask:
  """Return False for the biases that stand beside a kernel."""
  names = trees.leaf_names(task.is_head)
  mask = [
    not name.endswith('bias')
    or f'{name.removesuffix("bias")}kernel' not in names
    for name in names
  ]
  return jax.tree.unflatten(jax.tree.structure(task.is_head), mask)

"""FedALA (Zhang et al. 2023): a learnt mixture of two models begins a round.

  W_i <- clip(W_i - eta_W grad_W L_i(u(W_i)), 0, 1)     over s % of the data
  u(W) = w_i + (w - w_i) * W      for the leaves of `part`; w for all others
  w_i <- SGD_tau(u(W_i); data of client i)              i in the cohort S
  w   <- sum_i a_i w_i / sum_i a_i                      a_i = 1 or n_i

The products are elementwise; W_i begins at 1, and L_i is the loss of a batch.
Running statistics have no gradient: they are those of w.
A client keeps w_i and W_i. In a client's first mixture W_i is trained for
epochs until the losses of the last batches of ten of them have a standard
deviation below `threshold`, for MOST_EPOCHS at most; later for one epoch. In
round 0 there is nothing to mix.

Views: 'initial' is w; 'personal' is u(W_i), with W_i trained for an epoch, or
as in a first mixture if the client has not mixed yet.

New client: its w_i is w, so that there is nothing to mix; it trains for one
round, and its first mixture is that of the view 'personal'.

Differs from the paper: the weights a_i are 1 by default, n_i there; the bound
on the epochs of a first mixture. Gradient steps on W_i are counted in neither
`num_steps` nor simulated time. `threshold` is the public code's; the paper has
0.01. The s % are drawn anew for each mixture; in that code they are a
contiguous block of the client's examples. Its batches are in stored order; a
smaller last one is left out of local training, not of mixtures. That code mixes
for absent clients as well, and counts tensors instead of layers (`layer_idx`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task
from fedjax_pfl.data.batching import batches_of_epoch, steps_of_epoch

PERCENT = rules.Rule(
  lambda value: rules.is_int(value) and 1 <= value <= 100,
  'a whole number from 1 to 100',
  'a fraction: it is in percent',
)


class HParams(global_model.HParams):
  learning_rate: float = field(1.0, rules.above(0), traced=True)  # eta_W
  percent: int = field(80, PERCENT)  # s
  part: str = 'head'  # 'full', 'body', or layers
  threshold: float = field(0.1, rules.at_least(0), traced=True)


FAMILY, PAPER = 'mixtures', 'arxiv.org/abs/2212.01197'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()  # W_i stays as well, but w_i depends on it
NUM_LOSSES = 10  # of which the standard deviation is taken
MOST_EPOCHS = 100  # of a first mixture


class Client(NamedTuple):
  params: Params  # w_i
  mixture: Params  # W_i, for the leaves of `part`
  has_mixed: Array  # [] bool


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedALA."""
  part = trees.part_mask(task, hp.part, 'hp.part')
  averages = norm_stats.mask(part)
  part = jax.tree.map(
    lambda is_in, is_mean: is_in and not is_mean, part, averages
  )

  def local_update(down, client, data, rng):
    mixed = mix(task, hp, part, down, client, data, jax.random.fold_in(rng, 1))
    params, info = hp.train.fit(task, mixed.params, data, rng, down.round)
    return mixed._replace(params=params), params, info.metrics()

  def init_client(server, data, rng):
    ones = jax.tree.map(jnp.ones_like, trees.select(server.params, part))
    return Client(server.params, ones, jnp.array(False))

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_client=init_client,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': mix(task, hp, part, server, client, data, rng).params,
    },
  )
  return (Stage('fedala', hp.train.rounds, algorithm),)


def mix(task, hp, part, server, client, data, rng) -> Client:
  """Return the client with u(W_i) as its model, after W_i has learnt."""
  local = trees.select(client.params, part)
  change = jax.tree.map(jnp.subtract, trees.select(server.params, part), local)

  def mixed(weights):
    params = jax.tree.map(lambda w, d, a: w + d * a, local, change, weights)
    return trees.combine(params, server.params)

  size = (hp.percent * data.count) // 100  # of the block
  block = own_examples.shuffled(data, rng)._replace(count=size)
  batching = hp.train._replace(epochs=1, shuffle=False).batching(task)
  batch_at = batches_of_epoch(block, rng, batching)
  value_and_grad = jax.value_and_grad(
    lambda weights, batch, rng: task.loss(mixed(weights), batch, rng)
  )

  def step(position, state):
    weights, _ = state
    loss, grads = value_and_grad(weights, *batch_at(position, rng))
    weights = jax.tree.map(
      lambda a, g: jnp.clip(a - hp.learning_rate * g, 0, 1), weights, grads
    )
    return weights, loss

  def epoch(state):
    weights, losses, number = state
    start = weights, losses[0]
    steps = steps_of_epoch(block, batching)
    weights, last = lax.fori_loop(0, steps, step, start)
    return weights, jnp.roll(losses, -1).at[-1].set(last), number + 1

  def goes_on(state):
    _, losses, number = state
    is_calm = (number > NUM_LOSSES) & (jnp.std(losses) < hp.threshold)
    most = jnp.where(client.has_mixed, 1, MOST_EPOCHS)
    most = jnp.where(server.round > 0, most, 0)  # at first all are alike
    return (number < most) & ~is_calm

  leaf = jax.tree.leaves(server.params)[0]
  start = client.mixture, jnp.zeros(NUM_LOSSES, leaf.dtype), jnp.array(0)
  weights, _, number = lax.while_loop(goes_on, epoch, start)
  return Client(mixed(weights), weights, client.has_mixed | (number > 0))

"""pFedMe (Dinh et al. 2020): personal models near w, and w moves towards them.

  theta_i, w_i <- w                               for i in the cohort S
  for each batch b of the epochs:
    theta_i <- theta_i - inner_lr (grad L_b(theta_i) + lam (theta_i - w_i))
                                                  inner_steps times
    w_i     <- w_i - eta lam (w_i - theta_i)
  w <- (1 - beta) w + beta sum_i a_i w_i / sum_i a_i    a_i = 1 or n_i

eta is the learning rate of `train` in this round; inner_lr is the same in all
rounds. theta_i is w at the beginning of a round, not of a batch. A client keeps
its last theta_i and never uploads it; the view 'personal' is that model, and
the global one for a client that has never trained. Keep eta lam at 1 or below:
with 1 w_i becomes theta_i, with more it overshoots.

The metrics `loss` and `losses` are of the inner objective L + lam/2 |theta -
w|^2, `cross_entropies` of L, before every inner step.

With inner_steps = 1, lam = 1 / eta, inner_lr = eta and beta = 1 it is FedAvg
without momentum.

New client: theta_i begins as w and learns for one round, of which nothing is
sent.

Differs from the paper: only the cohort trains; there all clients do in every
round, and the cohort uploads. Whole epochs of batches instead of R steps; the
weights a_i; and a weight decay, if any, joins the inner gradient (the authors'
code has an undocumented one of 0.001). `train.momentum` is not used, as in the
paper.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  inner_steps: int = field(  # K of the paper
    5, rules.count('steps on each batch', 'epochs, which are train.epochs')
  )
  inner_lr: float = field(  # paper: 0.01 to 0.1
    0.05, rules.above(0), traced=True
  )
  lam: float = field(  # paper: 15 to 30, but eta = 0.005; here it is 0.1
    5.0, rules.above(0, '0 to switch it off: w would never change'), traced=True
  )
  beta: float = field(  # paper: 1, and 2: w goes beyond the mean
    1.0, rules.above(0, '0: w would never change'), traced=True
  )


FAMILY, PAPER = 'regularised', 'arxiv.org/abs/2006.08848'
FEDAVG_EQUIVALENT = None  # by its own settings: those of train matter, too
PRIVATE_LEAVES = ('personal',)


class Client(NamedTuple):
  personal: Params  # theta after its last local training
  has_trained: Array  # []


class Trained(NamedTuple):
  personal: Params  # theta_i
  shared: Params  # w_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of pFedMe."""
  batching = hp.train.batching(task)._replace(steps_per_batch=hp.inner_steps)

  def pull(tree):
    w = lax.stop_gradient(tree.shared)
    return 0.5 * hp.lam * losses.sum_squares(tree.personal, w)

  loss = losses.with_term(
    lambda tree, *args: task.loss(tree.personal, *args), pull
  )

  def local_update(server, client, data, rng):
    clock, start = server.round, Trained(server.params, server.params)
    tx = make_optimiser(hp, clock)
    tree, info = hp.train.fit(task, start, data, rng, clock, loss, tx, batching)
    has_trained = client.has_trained | (info.num_steps > 0)
    shared = norm_stats.taken_from(tree.personal, tree.shared)
    return Client(tree.personal, has_trained), shared, info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def aggregate(server, uploads, senders):
    clock, mean = averaging.aggregate(server, uploads, senders)
    params = jax.tree.map(
      lambda w, mean: (1 - hp.beta) * w + hp.beta * mean, server.params, mean
    )
    return global_model.Server(clock, norm_stats.taken_from(mean, params))

  algorithm = averaging._replace(
    init_client=lambda server, data, rng: Client(
      server.params, jnp.zeros((), bool)
    ),
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': trees.choose(
        client.has_trained, client.personal, server.params
      ),
    },
  )
  return (Stage('pfedme', hp.train.rounds, algorithm),)


def make_optimiser(hp: HParams, clock: Array) -> optax.GradientTransformation:
  """Return the inner steps of theta, and a step of w after those of a batch."""
  inner = hp.train._replace(
    learning_rate=optax.constant_schedule(hp.inner_lr), momentum=0.0
  )
  steps = {'theta': inner.sgd(clock), 'w': optax.set_to_zero()}
  rate = hp.lam * hp.train.learning_rate(clock)
  return optax.chain(
    optax.partition(steps, Trained('theta', 'w')), follow(hp.inner_steps, rate)
  )


def follow(every: int, rate: Array) -> optax.GradientTransformation:
  """Return w <- w - rate (w - theta), theta new, in one of `every` steps."""

  def update(updates, step, params=None):
    step = step + 1
    personal = optax.apply_updates(params.personal, updates.personal)
    pull = jnp.where(step % every == 0, jnp.asarray(rate), 0.0)
    shared = jax.tree.map(
      lambda w, theta: -pull * (w - theta), params.shared, personal
    )
    return Trained(updates.personal, shared), step

  return optax.GradientTransformation(
    lambda params: jnp.zeros((), jnp.int32), update
  )

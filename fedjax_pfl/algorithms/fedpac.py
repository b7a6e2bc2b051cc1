"""FedPAC (Xu, Tong and Huang 2023): aligned features, heads mixed by likeness.

  h_i  <- SGD(h_i; data of i, body b)           i in the cohort S, head_epochs
  b_i  <- SGD_tau(b' -> L_i(b', h_i) + lam/F mean |f - c_y|^2), from b
  b    <- sum_i a_i b_i / sum_i a_i
  c_k  <- mean of the features f of class k in the cohort, after training
  h_i  <- sum_j x_ij h_j,  x_i = argmin_x x' (diag(v) + G_i) x  on the simplex

  (G_i)_jl = sum_k <m_ik - m_jk, m_ik - m_lk>,   m_ik = n_ik / n_i mean f of k
  v_i      = (sum_k n_ik / n_i mean |f|^2 of k - sum_k |m_ik|^2) / n_i

m and v are of the body b as the round begins; they and c_k are taken in batches
of random order, which matters to BatchNorm. Where no client of the last
cohort had class k, c_k is the client's own mean before the round; in the first
round there is no pull. Weights x_ij below 0.001 are 0, as in the public code,
and the others are scaled to 1.

New client: it fits its head, which begins as the initial one, to b in one
round, of which nothing is sent.

Differs from the paper: nothing known in the equations. In the public code,
which `head_learning_rate` and `head_epochs` are from, the momentum is 0.5, the
decay 5e-4, and a_i = n_i; here a_i are 1 by default. Its loss means over the F
features. It drops eigenvalues below 0.01 of a matrix that rounding made
indefinite; here the minimum is found by an interior-point method, which needs
no such step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task, matmul
from fedjax_pfl.data.batching import num_labels


class HParams(global_model.HParams):
  lam: float = field(1.0, rules.at_least(0), traced=True)
  head_epochs: int = field(
    1, rules.count('epochs', '0: the heads would never learn')
  )
  head_learning_rate: float = field(  # in all rounds
    0.1, rules.above(0), traced=True
  )


FAMILY, PAPER = 'prototypes', 'arxiv.org/abs/2306.11867'
FEDAVG_EQUIVALENT = None  # never
NEEDS_CLASSES = True
PRIVATE_LEAVES = ()
SMALLEST_WEIGHT = 1e-3
STEPS = 40  # of the interior-point method: 1e-10 after about 25


class Server(NamedTuple):
  round: Array
  params: Params
  means: Array  # [Y, F] c
  present: Array  # [Y] whether the last cohort had the class


class Up(NamedTuple):
  body: Params
  head: Params
  sums: Array  # [Y, F] of features after training
  counts: Array  # [Y] examples of each class
  shares: Array  # [Y, F] m
  variance: Array  # [] v


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedPAC."""
  body = trees.invert(task.is_head)
  of_head = hp.train._replace(
    epochs=hp.head_epochs,
    learning_rate=optax.constant_schedule(hp.head_learning_rate),
  )
  averaging = global_model.averaging_of_part(task, hp, body)

  def local_update(down, client, data, rng):
    start = trees.combine(client, down.params)
    mixed = own_examples.shuffled(data, jax.random.fold_in(rng, 1))
    shares, variance, means = statistics(task, hp, start, mixed, rng)
    targets = jnp.where(down.present[:, None], down.means, means)
    pull = hp.lam * (down.round > 0)

    def loss(params, batch, rng):
      f, logits = task.train_outputs(params, batch, rng)
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      apart = jnp.mean((f - targets[batch.y]) ** 2, axis=1)  # [B]
      total = cross_entropy + pull * losses.masked_mean(apart, batch)
      return total, {'cross_entropies': cross_entropy}

    first, second = jax.random.split(rng)
    params, fitted = of_head.fit(
      task, start, data, first, down.round, part=task.is_head
    )
    params, info = hp.train.fit(
      task, params, data, second, down.round, loss, part=body
    )
    sums, counts = own_examples.class_sums(
      task, params, mixed, rng, hp.train.batch_size
    )
    head = trees.select(params, task.is_head)
    up = Up(trees.select(params, body), head, sums, counts, shares, variance)
    num_steps = info.num_steps + fitted.num_steps
    return head, up, {**info.metrics(), 'num_steps': num_steps}

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    means = jnp.zeros_like(params['head']['kernel'].T)  # [Y, F]
    return Server(clock, params, means, jnp.zeros(task.num_classes, bool))

  def aggregate(server, up, senders):
    clock, params = averaging.aggregate(server, up.body, senders)
    sums, counts = senders.sum((up.sums, up.counts))
    means = sums / jnp.maximum(counts, 1)[:, None]
    return Server(clock, params, means, counts > 0)

  def respond(server, heads, up, senders):
    is_there = senders.masked(senders.counts) > 0
    weights = head_weights(up.shares, up.variance, is_there)
    # Who keeps running statistics puts those of the body into its holes.
    mixed = trees.mixed(trees.select(up.head, task.is_head), weights)
    return jax.vmap(trees.choose)(is_there, mixed, heads)

  algorithm = averaging._replace(
    init_server=init_server,
    # With the client's mixed head, which the server made.
    download=lambda server, client: server._replace(
      params=trees.combine(client, server.params)
    ),
    local_update=local_update,
    aggregate=aggregate,
    respond=respond,
  )
  return (Stage('fedpac', hp.train.rounds, algorithm),)


def statistics(task, hp, params, data, rng) -> tuple[Array, Array, Array]:
  """Return m [Y, F], v [] and the client's own class means [Y, F]."""

  def with_squares(params, x, mask):
    f = task.features(params, x, mask)
    return jnp.concatenate([f, jnp.sum(f**2, axis=1, keepdims=True)], axis=1)

  sums, counts = own_examples.class_sums(
    task, params, data, rng, hp.train.batch_size, with_squares
  )
  n = jnp.maximum(num_labels(data), 1)
  shares = sums[:, :-1] / n
  variance = (jnp.sum(sums[:, -1]) / n - jnp.sum(shares**2)) / n
  return shares, variance, sums[:, :-1] / jnp.maximum(counts, 1)[:, None]


# ---- Weights of heads --------------------------------------------------------


def head_weights(shares: Array, variance: Array, is_there: Array) -> Array:
  """Return x_ij [C, C] from m [C, Y, F] and v [C] of the clients there."""
  flat = shares.reshape(len(shares), -1)

  def weights(row):
    apart = row - flat
    gram = matmul(apart, apart.T)
    x = simplex_minimum(jnp.diag(variance) + gram, is_there)
    x = jnp.where(x < SMALLEST_WEIGHT, 0, x)
    return x / jnp.maximum(jnp.sum(x), SMALLEST_WEIGHT)

  return jax.lax.map(weights, flat)


def simplex_minimum(matrix: Array, is_there: Array) -> Array:
  """Return argmin x' A x, x >= 0, sum x = 1, x = 0 where nobody is there.

  A is positive semidefinite. A primal-dual interior-point method: Newton's
  steps for A x - y - s = 0 and x_j s_j = mu, where mu falls to 0.
  """
  there = is_there.astype(matrix.dtype)
  number = jnp.maximum(there.sum(), 1)
  scale = jnp.maximum(jnp.sum(there * jnp.diag(matrix)) / number, 1e-30)
  a = matrix / scale * there * there[:, None]
  still = jnp.diag(1 - there)  # rows of those who are not there
  smallest = 1e-3 * jnp.finfo(matrix.dtype).eps

  def newton(_, state):
    x, y, s = state
    mu = jnp.maximum(0.1 * jnp.sum(x * s) / number, smallest)
    ratio = jnp.where(is_there, s / x, 0)
    system = a + jnp.diag(ratio) + still
    product = matmul(a, x)
    right = there * (y - product + mu / jnp.where(is_there, x, 1))
    both = jnp.linalg.solve(system, jnp.stack([right, there], axis=1))
    dy = (1 - jnp.sum(x) - jnp.sum(both[:, 0])) / jnp.sum(both[:, 1])
    dx = both[:, 0] + dy * both[:, 1]
    ds = there * (mu / jnp.where(is_there, x, 1) - s - ratio * dx)
    length = jnp.minimum(longest(x, dx), longest(s, ds))
    return x + length * dx, y + length * dy, s + length * ds

  def longest(value, change):
    falls = is_there & (change < 0)
    # Never by 0: with one client, unoptimised programs ended with NaN.
    limits = jnp.where(falls, value / -jnp.where(falls, change, -1), jnp.inf)
    return jnp.minimum(1.0, 0.99 * jnp.min(limits))

  start = there / number, jnp.zeros((), matrix.dtype), there
  x, _, _ = jax.lax.fori_loop(0, STEPS, newton, start)
  return x

"""FedAS (Yang, Huang and Ye 2024): aligned bodies, weighted by Fisher traces.

  c_k  <- mean of f(w_i) over the client's examples of class k
  b_i  <- SGD over one epoch, from b, of sum_k mean_jF (f_j - c_k)^2
  w_i  <- SGD_tau((b_i, h_i); data of client i)         i in the cohort S
  F_i  <- mean_j |grad log p(y_j | x_j; w_i)|^2         over all examples j
  b    <- sum_i F_i b_i / sum_i F_i

A client keeps w_i = (b_i, h_i), its model after the last round in which it took
part; c_k are of the features of that model, in batches of random order, which
matters to BatchNorm. The sum over k and the means over j are of the classes in
a batch and of their examples. F_i is the trace of the Fisher information of
body and head, of the labels that the data have. The view `personal` is w_i.
Where all F_i are 0, they weigh as 1.

protocol 'released': F_i of the authors' code, the sum over batches of size B of
|grad mean_b log p|^2, in stored order. That code leaves out a smaller last
batch; here it counts.

New client: w_i begins as the server's body with the initial head, is aligned
and learns for one round, of which nothing is sent.

Differs from the paper: `align_learning_rate` and `align_batch_size` are those
of the public code. In that code clients share one body while they align, so
that each begins where the one before it ended; here each begins with b. It
computes F_i of absent clients, too, which it only prints. `train.aggregation`
is not used: F_i are the weights.

A gradient for each example inside a batch would cost too much: with BatchNorm
of batch statistics F_i is that of a model which sees batches of one, not of the
one that was trained. norm_statistics=running or protocol=released avoid it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import (
  global_model,
  local_training,
  optimisers,
  own_examples,
)
from fedjax_pfl.core import losses, norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import fold_examples


class HParams(global_model.HParams):
  align_learning_rate: float = field(0.01, rules.at_least(0), traced=True)
  align_batch_size: int = field(
    16, rules.count('examples', '0: there would be no batch')
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY = 'shared parts'
PAPER = (
  'openaccess.thecvf.com/content/CVPR2024/html/Yang_FedAS_Bridging_'
  'Inconsistency_in_Personalized_Federated_Learning_CVPR_2024_paper.html'
)
FEDAVG_EQUIVALENT = None  # never
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('head',)
NOT_CLIPPED = 'whose largest weights F_i a clip would make the smallest'


class Up(NamedTuple):
  params: Params  # the body
  trace: Array  # [] F_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAS."""
  body = trees.invert(task.is_head)
  plain = optimisers.sgd(hp.align_learning_rate, 0.0)
  align = hp.train._replace(epochs=1, batch_size=hp.align_batch_size)
  is_released = hp.protocol == 'released'

  def local_update(down, client, data, rng):
    first, second = jax.random.split(rng)
    start = trees.combine(down.params, client)
    loss = alignment(task, class_means(task, hp, client, data, rng))
    params, aligned = align.fit(
      task, start, data, first, down.round, loss, plain, part=body
    )
    params, info = hp.train.fit(task, params, data, second, down.round)
    size = hp.train.batch_size if is_released else 1
    trace = fisher_trace(task, params, data, rng, size)
    if not is_released:
      trace = trace / jnp.maximum(data.count, 1)
    num_steps = info.num_steps + aligned.num_steps
    metrics = {**info.metrics(), 'num_steps': num_steps}
    return params, Up(trees.select(params, body), trace), metrics

  def aggregate(server, up, senders):
    traces = senders.masked(up.trace)
    weights = jnp.where(jnp.any(traces > 0), traces, 1)
    mean = senders.mean(up.params, weights)
    params = trees.combine(mean, server.params)
    return global_model.Server(server.round + 1, params)

  algorithm = global_model.averaging_of_part(task, hp, body)._replace(
    init_client=lambda server, data, rng: server.params,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {'personal': client},
  )
  return (Stage('fedas', hp.train.rounds, algorithm),)


def class_means(task, hp, params, data, rng) -> Array:
  """Return c_k [Y, F], 0 where there is no example."""
  mixed = own_examples.shuffled(data, jax.random.fold_in(rng, 2))
  sums, counts = own_examples.class_sums(
    task, params, mixed, rng, hp.align_batch_size
  )
  return sums / jnp.maximum(counts, 1)[:, None]


def alignment(task: Task, means: Array) -> local_training.Loss:
  """Return the sum over classes of a batch of mean_jF (f_j - c_k)^2."""

  def loss(params, batch, rng):
    f = task.train_outputs(params, batch, rng).features
    apart = jnp.mean((f - means[batch.y]) ** 2, axis=1)  # [B]
    is_same = batch.y[:, None] == batch.y  # [B, B]
    counts = is_same @ batch.mask
    return jnp.sum(batch.mask * apart / jnp.maximum(counts, 1))

  return loss


def fisher_trace(
  task: Task, params: Params, data: ClientData, rng: Key, size: int
) -> Array:
  """Return the sum over batches of `size` of |grad mean_b log p|^2."""

  def loss(params, batch):
    logits = task.logits(params, batch.x, batch.mask)
    return losses.masked_cross_entropy(logits, batch)

  def add(total, batch):
    grads = norm_stats.learned(jax.grad(loss)(params, batch))
    return total + sum(jnp.sum(g**2) for g in jax.tree.leaves(grads))

  zero = jnp.zeros((), jax.tree.leaves(params)[0].dtype)
  return fold_examples(add, zero, data, task.normalise, rng, size)

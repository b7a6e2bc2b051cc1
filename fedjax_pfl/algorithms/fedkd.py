"""FedKD (Wu et al. 2022): an own model and a small shared one are distilled.

  w_i, V_i, m_i <- SGD_tau(L_i(w_i) + L_i(m_i) + D / (L_i(w_i) + L_i(m_i)))
  D   = KL(p_m || p_w) + KL(p_w || p_m) + 2 mean_bF (f_w - f_m V_i)^2
  u_i = trunc(m_i - m)                        i in the cohort S, from m
  m   <- m + trunc(sum_i a_i u_i / sum_i a_i)               a_i = 1 or n_i

p and f are outputs and features of both models on a batch, KL the mean over its
examples, and gradients pass all of it. trunc keeps of each matrix the least
number of largest singular values whose squares are more than the share T of
the sum of all; T goes from `energy_start` to `energy_end` over the rounds. A
kernel of a convolution is the matrix [height width inputs, outputs]; biases
stay whole. A client keeps its model w_i and the map V_i between features; all
begin as the same. The view `personal` is w_i, the view `initial` is m.

m has the architecture `student`, one of the list of models; '': as w_i. No
message has the shape of w_i. What is sent is counted as whole matrices; the
metric `sent_share` is the share of that which factors would have.

New client: w_i and V_i begin as those of all others and learn beside m for one
round, of which nothing is sent.

Differs from the paper: it is one of transformers, whose attention D has, too.
In the authors' code, where all but the last singular value are not enough,
nothing of the matrix is sent; here it is all. There T is a round ahead, and KL
a mean over the classes, too. HtFLlib, which has both as well, truncates the
matrices of m_i itself and clips gradients, as clip_norm=10 does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.client.student import first_key, with_student
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task, matmul
from fedjax_pfl.models import layers
from fedjax_pfl.models.registry import student_of

ENERGY = rules.share('a percentage, or a number of singular values')


class HParams(global_model.HParams):
  energy_start: float = field(0.95, ENERGY, traced=True)
  energy_end: float = field(0.98, ENERGY, traced=True)
  student: str = ''  # the architecture of m; '': that of w_i


FAMILY, PAPER = 'distillation', 'doi.org/10.1038/s41467-022-29763-x'
FEDAVG_EQUIVALENT = None  # never: gradients pass between the models
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('own', 'map')
ACROSS_MODELS = 'hp.student=NAME, a model of all'


class Client(NamedTuple):
  own: Params  # w_i
  map: dict  # V_i, a kernel [F of m, F of w_i]


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedKD."""
  student = student_of(task, hp.student)

  def init_client(server, data, rng):
    key = first_key(server)
    model = task.init(key)
    widths = (len(of['head']['kernel']) for of in (server.params, model))
    dense = layers.dense(jax.random.fold_in(key, 1), *widths)
    return Client(model, {'kernel': dense['kernel']})

  def loss(models, batch, rng):
    model, feature_map = models['own']
    second = jax.random.fold_in(rng, 1)
    f, w = task.train_outputs(model, batch, second)
    g, m = student.train_outputs(models['student'], batch, rng)
    of_own = losses.batch_loss(w, batch, task.example_loss)
    of_student = losses.batch_loss(m, batch, task.example_loss)
    p, q = jax.nn.log_softmax(w), jax.nn.log_softmax(m)
    both = jnp.sum((jnp.exp(p) - jnp.exp(q)) * (p - q), axis=1)  # [B]
    apart = jnp.mean((f - matmul(g, feature_map['kernel'])) ** 2, axis=1)
    taught = losses.masked_mean(both + 2 * apart, batch)
    total = of_own + of_student
    total += taught / jnp.maximum(total, 1e-12)
    reports = {'own_losses': of_own, 'student_losses': of_student}
    return total, reports

  def energy(clock):
    share = clock / hp.train.rounds
    return hp.energy_start + share * (hp.energy_end - hp.energy_start)

  def local_update(down, client, data, rng):
    steps = {part: hp.train.sgd(down.round) for part in ('own', 'map', 'm')}
    tx = optax.partition(steps, {'own': Client('own', 'map'), 'student': 'm'})
    start = {'own': client, 'student': down.params}
    models, info = hp.train.fit(task, start, data, rng, down.round, loss, tx)
    limit = energy(down.round)
    up, sent_share = truncated(models['student'], down.params, limit)
    return models['own'], up, {**info.metrics(), 'sent_share': sent_share}

  def aggregate(server, up, senders):
    mean = senders.mean(up, hp.train.weights(senders.counts))
    params, _ = truncated(mean, server.params, energy(server.round))
    return server._replace(round=server.round + 1, params=params)

  averaging = global_model.federated_averaging(task, hp, local_update)
  algorithm = with_student(averaging, task, student)
  algorithm = algorithm._replace(init_client=init_client, aggregate=aggregate)
  return (Stage('fedkd', hp.train.rounds, algorithm),)


def truncated(
  params: Params, before: Params, energy: Array
) -> tuple[Params, Array]:
  """Return before + trunc(params - before), and the share that is sent: []."""

  def add(new, old):
    """Return the leaf, and how many numbers its change is as factors."""
    if new.ndim < 2:
      return new, new.size
    change = (new - old).reshape(-1, new.shape[-1])
    u, s, v = jnp.linalg.svd(change, full_matrices=False)
    squares = s**2
    earlier = jnp.cumsum(squares) - squares  # of the larger ones
    is_kept = earlier <= energy * jnp.sum(squares)
    kept = matmul(u * jnp.where(is_kept, s, 0), v).reshape(new.shape)
    sent = jnp.sum(is_kept) * (sum(change.shape) + 1)
    return old + kept, jnp.minimum(sent, new.size)

  leaves, structure = jax.tree.flatten(params)
  pairs = map(add, leaves, jax.tree.leaves(before))
  leaves, sent = zip(*pairs, strict=True)
  whole = sum(leaf.size for leaf in leaves)
  return structure.unflatten(leaves), jnp.asarray(sum(sent) / whole, float)

"""Fair objectives: a client's loss as it begins a round decides its weight.

  d = sum_i s_i d_i;   F_i is the mean loss of the model that client i downloads
  qffl     s_i = L F_i^q / sum_j (q F_j^(q-1) |L d_j|^2 + L F_j^q), L = 1 / eta,
           q = 1, eta the clients' first learning rate        (Li et al. 2020)
  afl      s_i = l_i / sum_j l_j, l = 1 / K;  then l <- the point of the simplex
           next to l + gamma F, gamma = 0.1                (Mohri et al. 2019)
  term     s_i = exp(t F_i) / sum_j exp(t F_j), t = 1         (Li et al. 2021)
  fedmgda  s_i = r l_i / |d_i|, r the mean norm; l >= 0 of sum 1 and within
           epsilon = 0.1 of 1 / n has the least |sum_i l_i d_i / |d_i||
                                                              (Hu et al. 2022)

Differs from FedMGDA+: r, with which a step has the size of FedAvg's; its eta_g
is `server_learning_rate` of server_optimizer=sgd. From the code of TERM: it
divides by a mean over rounds, not that of this one, and by n once more.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.around.exchange import AS_IT_IS, as_one, exchanging, refusal
from fedjax_pfl.around.lifted import replaced
from fedjax_pfl.around.robust import TINY, Known
from fedjax_pfl.client.own_examples import mean_losses
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Params, Task, matmul

STEPS = 200  # of the descent to l of fedmgda
STRENGTH = {'qffl': 1.0, 'afl': 0.1, 'term': 1.0, 'fedmgda': 0.1}


class Fair(NamedTuple):
  """What a rule knows beside changes and losses."""

  rule: str
  strength: float  # q, gamma, t or epsilon
  eta: Array | float
  task: Task
  batch_size: int
  num_clients: int  # K


class Sent(NamedTuple):
  """An upload with the loss before it."""

  params: Params
  loss: Array  # F_i


def fairly_aggregated(stage: Stage, fair: Fair) -> Stage:
  """Return the stage with a server that weighs changes by losses.

  Its clients download a whole model, and its server takes means alone.
  """
  method, key = stage.algorithm, jax.eval_shape(jax.random.key, 0)
  model = trees.kinds(jax.eval_shape(fair.task.init, key))
  refused = partial(refusal, stage, 'aggregation', fair.rule)

  def local_update(down, client, data, rng):
    params = getattr(down, 'params', ())
    if trees.kinds(params) != model:
      raise refused('its clients download no whole model that has a loss')
    own = fair.task, trees.repeated(params, 1), data, rng, fair.batch_size
    client, up, metrics = method.local_update(down, client, data, rng)
    return client, Sent(up, mean_losses(*own)[0]), metrics

  def aggregate(server, sent, senders):
    return method.aggregate(server, sent.params, senders)

  def begin(server, rng, previous):
    l = jnp.full(fair.num_clients, 1 / fair.num_clients)
    return l if previous is None else previous

  def receive(sent, senders, l):
    ids, there = senders.ids, senders.has_sent & (senders.counts > 0)
    losses = jnp.where(there, jnp.maximum(sent.loss, 1e-10), 0)
    known = Known(trees.products(sent.params), there, 0, there)
    scale = weights_of(fair, known, losses, l[ids])
    change = Sent(trees.weighted_sum(sent.params, scale), jnp.zeros(()))
    if fair.rule == 'afl':
      l = on_simplex(l.at[ids].add(fair.strength * losses), 0, 1)
    return *as_one(change, senders, refused), l

  if method.respond is not None:
    raise refused('its server answers each client from single uploads')
  stage = replaced(stage, local_update=local_update, aggregate=aggregate)
  return exchanging(stage, 'fair', AS_IT_IS, receive, begin)


def on_simplex(values: Array, low: Array | float, high: Array | float) -> Array:
  """Return the nearest point of sum 1 between low and high, by bisection."""

  def halve(_, ends):
    middle = jnp.mean(ends)
    is_more = jnp.sum(jnp.clip(values - middle, low, high)) > 1
    return jnp.where(is_more, ends.at[0].set(middle), ends.at[1].set(middle))

  ends = jnp.stack([jnp.min(values) - 1, jnp.max(values)])
  shift = jnp.mean(lax.fori_loop(0, 60, halve, ends))
  return jnp.clip(values - shift, low, high)


def weights_of(fair: Fair, known: Known, losses: Array, l: Array) -> Array:
  """Return s [C]; `l` [C] is that of afl."""
  there, norms, strength = known.there, known.norms, fair.strength
  if fair.rule == 'qffl':
    power = jnp.where(there, losses, 1) ** strength
    smooth = 1 / fair.eta
    steps = strength * power / losses * (smooth * norms) ** 2 + smooth * power
    total = jnp.sum(jnp.where(there, steps, 0))
    return there * smooth * power / jnp.maximum(total, TINY)
  if fair.rule == 'afl':
    return there * l / jnp.maximum(jnp.sum(there * l), TINY)
  if fair.rule == 'term':
    return jax.nn.softmax(jnp.where(there, strength * losses, -jnp.inf))
  number, norms = jnp.maximum(known.number, 1), jnp.maximum(norms, TINY)
  products = known.products / norms / norms[:, None]
  low = there * jnp.maximum(1 / number - strength, 0)
  high = there * (1 / number + strength)
  step = lambda _, l: on_simplex(l - matmul(products, l) / number, low, high)
  l = lax.fori_loop(0, STEPS, step, there / number)
  return l / norms * jnp.sum(there * norms) / number

"""FedDBE (Zhang et al. 2023): each client keeps a shift of the features.

  r_i    <- (1 - mu) r_i + mu mean_b f_b     in every step; 0 before the first
  r      <- sum_i n_i r_i / sum_i n_i        once, over all clients
  (b_i, h_i, m_i) <- SGD_tau(L_i(h(f + m_i)) + kappa/2 mean_F (r_i - r)^2)
  (b, h) <- sum_i a_i (b_i, h_i) / sum_i a_i   i in the cohort S, a_i = 1 or n_i

A round before the T rounds gives r: all clients train on L_i(h(f)) from the
initial model, and of that training only r_i is used. A client keeps its shift
m_i [F], which begins as 0, for its predictions h(f + m_i): the view `personal`.
The view `initial` is h(f).

The gradient of the penalty is that of the last mu mean_b f_b in r_i.

New client: m_i begins as 0 and learns for one round, of which nothing is sent.

Differs from the paper: the weights a_i are 1 by default, and the momentum, the
decay and the rates of `train` are those of m_i, too. The authors' code has
neither momentum nor decay, and the rate of m_i is constant there; it leaves out
a smaller last batch.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  kappa: float = field(50.0, rules.at_least(0), traced=True)
  mean_momentum: float = field(  # mu; 1: r_i is the mean of the batch
    1.0, rules.interval('(0, 1]', 'the weight of the older means'), traced=True
  )


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2311.14975'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ('shift',)


class Server(NamedTuple):
  round: Array
  params: Params
  mean: Array  # [F] r


class Client(NamedTuple):
  shift: Array  # [F] m_i


class Shifted(NamedTuple):
  """The view that predicts by h(f + m)."""

  params: Params
  shift: Array
  rule = 'logits = the head of params/ on f + shift'


class Fit(NamedTuple):
  """What a fit changes: parameters, and r_i beside them."""

  trained: Shifted
  running: Array  # [F]


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the round of all clients that gives r, and the others."""
  averaging = global_model.federated_averaging(task, hp)
  by_examples = hp.train._replace(aggregation='examples')

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    return Server(clock, params, jnp.zeros_like(params['head']['kernel'][:, 0]))

  def fit(down, client, data, rng, kappa, moves):
    mu = hp.mean_momentum

    def loss(fit, batch, rng):
      """Return L(h(f + m)) + kappa/2 mean_F (r_i - r)^2, which moves r_i."""
      params, shift = fit.trained
      f = task.train_outputs(params, batch, rng).features
      total = jnp.maximum(batch.mask.sum(), 1)
      centre = jnp.sum(batch.mask[:, None] * f, 0) / total  # [F]
      running = (1 - mu) * lax.stop_gradient(fit.running) + mu * centre
      logits = task.classify(params, f + shift if moves else f)
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      bias = 0.5 * jnp.mean((running - down.mean) ** 2)
      gathered = losses.with_gradient(fit.running, running - fit.running)
      reports = {'cross_entropies': cross_entropy, 'biases': bias}
      return cross_entropy + kappa * bias + gathered, reports

    clock = jnp.maximum(down.round - 1, 0)  # of the T rounds
    tx = optax.partition(
      {'train': hp.train.sgd(clock), 'add': optax.identity()},
      Fit('train', 'add'),
    )
    start = Fit(Shifted(down.params, client.shift), jnp.zeros_like(down.mean))
    return hp.train.fit(task, start, data, rng, clock, loss, tx)

  def measure(down, client, data, rng):
    after, info = fit(down, client, data, rng, 0.0, moves=False)
    return client, after.running, info.metrics()

  def local_update(down, client, data, rng):
    after, info = fit(down, client, data, rng, hp.kappa, moves=True)
    params, shift = after.trained
    return Client(shift), params, info.metrics()

  def with_mean(server, up, senders):
    mean = senders.mean(up, by_examples.weights(senders.counts))
    return Server(server.round + 1, server.params, mean)

  def aggregate(server, up, senders):
    clock, params = averaging.aggregate(server, up, senders)
    return Server(clock, params, server.mean)

  def predict(view, x, mask):
    if not isinstance(view, Shifted):
      return task.logits(view, x, mask)
    f = task.features(view.params, x, mask)
    return task.classify(view.params, f + view.shift)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: Client(jnp.zeros_like(server.mean)),
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': Shifted(server.params, client.shift),
    },
    predict=predict,
  )
  first = algorithm._replace(local_update=measure, aggregate=with_mean)
  return (
    Stage('mean', 1, first, full_participation=True),
    Stage('feddbe', hp.train.rounds, algorithm),
  )

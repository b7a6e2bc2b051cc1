"""FedProto (Tan et al. 2022): clients share class means, and no model.

  w_i  <- SGD_tau(w -> L_i(w) + lam mean_b |f_b - c_y|^2), from w_i   i in S
  c_ik <- mean of the features f of class k of client i, after training
  c_k  <- sum_i n_ik c_ik / sum_i n_ik                  i in the cohort S

A client keeps its model w_i; all begin as the same w_0. There is no pull to a
mean that is not known yet, and c_k stays where nobody in the cohort has class
k. Clients send n_ik c_ik and n_ik, which the server adds up
(`aggregation` does nothing). c_ik is taken in batches of random order, which
matters to BatchNorm. In the view `personal` the head of w_i predicts, in the
view `prototypes` the nearest c_k.

protocol 'released': the authors' code. The pull is lam / F; c_ik is of the last
epoch, of features in the forward passes of its steps, while w_i moves; c_k is
the plain mean of the clients that have the class. All clients take part in
every round. A client predicts by `prototypes` only classes that it has. That
code leaves out a smaller last batch; here it counts.

protocol 'pfllib': that of PFLlib, as 'released' but for this: c_ik is of all
epochs, any cohort trains, c_k is forgotten in a round in which nobody has class
k, and `prototypes` predicts all classes that have c_k.

New client: w_0, trained near the means c_k for one round, of which nothing is
sent.

Differs from the paper: it weighs c_ik by n_ik / N_k and divides by the number
of clients, too; here the weights sum to 1. Its pull is written for class means,
and for the features of an example in its convergence theorem, as here. There
all clients take part in every round.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import (
  global_model,
  optimisers,
  own_examples,
  personalization,
)
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task
from fedjax_pfl.data.batching import steps_in_time, steps_of_epoch
from fedjax_pfl.data.client_data import label_counts


class HParams(global_model.HParams):
  lam: float = field(1.0, rules.at_least(0), traced=True)
  protocol: str = field(  # or 'released', 'pfllib'
    'paper', rules.protocol(('paper', 'released', 'pfllib'))
  )


FAMILY, PAPER = 'prototypes', 'arxiv.org/abs/2105.00243'
FEDAVG_EQUIVALENT = None  # never: no model is sent
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('params',)
ACROSS_MODELS = ''
NOT_CLIPPED = 'whose server divides by counts, which noise may bring near 0'


class Server(NamedTuple):
  round: Array
  params: Params  # w_0
  means: Array  # [Y, F] c
  present: Array  # [Y] whether a client ever sent the class


class Client(NamedTuple):
  params: Params  # w_i


class Up(NamedTuple):
  """What the server adds up."""

  sums: Array  # [Y, F] n_ik c_ik; but for the paper's protocol c_ik
  weights: Array  # [Y] n_ik, or 1 of a class that the client has


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedProto."""
  is_paper, is_released = hp.protocol == 'paper', hp.protocol == 'released'
  gather = trained_then_gathered if is_paper else trained_and_gathered

  def local_update(down, client, data, rng):
    params, (sums, counts), info = gather(task, hp, down, client, data, rng)
    if not is_paper:
      sums = sums / jnp.maximum(counts, 1)[:, None]
      counts = (counts > 0).astype(sums.dtype)
    return Client(params), Up(sums, counts), info.metrics()

  def init_server(rng):
    params = task.init(rng)
    means = jnp.zeros_like(params['head']['kernel'].T)  # [Y, F]
    none = jnp.zeros(task.num_classes, bool)
    return Server(jnp.zeros((), jnp.int32), params, means, none)

  def aggregate(server, up, senders):
    sums, total = senders.sum(up)
    is_new = total > 0
    means = sums / jnp.where(is_new, total, 1)[:, None]
    means = jnp.where(is_new[:, None], means, server.means)
    known = is_new if hp.protocol == 'pfllib' else server.present | is_new
    return Server(server.round + 1, server.params, means, known)

  def personalize(server, client, data, rng):
    known = server.present
    if is_released:
      known &= label_counts(data, task.num_classes) > 0
    known |= ~jnp.any(known)  # it knows none, and has to say something
    model = personalization.Templates(client.params, server.means, known)
    return {
      'personal': client.params,
      'prototypes': personalization.Euclidean(model),
    }

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: Client(server.params),
    download=lambda server, client: server._replace(params=()),
    aggregate=aggregate,
    personalize=personalize,
    global_model=None,
  )
  stage = Stage('fedproto', hp.train.rounds, algorithm)
  return (stage._replace(full_participation=is_released),)


def objective(task, hp, down, params, batch, rng):
  """Return L + the pull, and with it L and the features of the batch."""
  f, logits = task.train_outputs(params, batch, rng)
  cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
  apart = jnp.sum((f - down.means[batch.y]) ** 2, axis=1)  # [B]
  if hp.protocol != 'paper':
    apart /= f.shape[1]
  pull = losses.masked_mean(jnp.where(down.present[batch.y], apart, 0), batch)
  return cross_entropy + hp.lam * pull, cross_entropy, f


def trained_then_gathered(task, hp, down, client, data, rng):
  """Return w_i, then sums [Y, F] and counts [Y] of features; and the fit."""

  def loss(params, batch, rng):
    total, cross_entropy, _ = objective(task, hp, down, params, batch, rng)
    return total, {'cross_entropies': cross_entropy}

  params, info = hp.train.fit(task, client.params, data, rng, down.round, loss)
  data = own_examples.shuffled(data, jax.random.fold_in(rng, 1))
  size = hp.train.batch_size
  return params, own_examples.class_sums(task, params, data, rng, size), info


def trained_and_gathered(task, hp, down, client, data, rng):
  """Return the same, of the features in each step: the authors' code, PFLlib's.

  [sums, counts] of the last epoch, or of all, are a leaf of the tree, to which
  each step adds its "gradient".
  """

  def loss(tree, batch, rng):
    params, rows = tree
    total, cross_entropy, f = objective(task, hp, down, params, batch, rng)
    ones = jnp.ones_like(f[:, :1])
    new = batch.mask[:, None] * jnp.concatenate([f, ones], axis=1)
    new = jnp.zeros_like(rows).at[batch.y].add(new)
    gathered = losses.with_gradient(rows, new)
    return total + gathered, {'cross_entropies': cross_entropy}

  batching = hp.train.batching(task)
  epochs = hp.train.epochs - 1 if hp.protocol == 'released' else 0
  before = epochs * steps_of_epoch(data, batching)
  before = steps_in_time(data, batching, before)
  tx = optax.partition(
    {
      'train': hp.train.sgd(down.round),
      'add': optimisers.at_steps(optax.identity(), lambda n: n >= before),
    },
    ('train', 'add'),
  )
  none = jnp.zeros((task.num_classes, down.means.shape[1] + 1))
  (params, rows), info = hp.train.fit(
    task, (client.params, none), data, rng, down.round, loss, tx
  )
  return params, (rows[:, :-1], rows[:, -1]), info

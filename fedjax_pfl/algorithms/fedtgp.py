"""FedTGP (Zhang et al. 2024): the server trains the class means of all clients.

  w_i  <- SGD_tau(w -> L_i(w) + lam/F mean_b |f_b - p_y|^2), from w_i   i in S
  c_ik <- mean of the features f of class k of client i, after training
  T    <- SGD_epochs(T -> mean_ik -log q_ik),  p_k = T(e_k)        on the server

              exp(-|c_ik - p_k| - delta)
  q_ik = -------------------------------------------------------
         exp(-|c_ik - p_k| - delta) + sum_{l != k} exp(-|c_ik - p_l|)

  delta = min(max_{k, l} |c_k - c_l|, tau)     c_k = mean of c_ik over i in S

T has an embedding e_k [F] of each class, one hidden layer of F, and a linear
one. The sum over ik is over the means of the cohort; T takes it in batches of
`batch_size`, and goes on where it ended. With fewer than two classes delta is
tau. A client keeps its model w_i; all begin as the same. There is no pull
before the first means have come. In the view `personal` the head of w_i
predicts, in the view `prototypes` the nearest p_k; `aggregation` does nothing.

No message has the shape of the model of a client, but for its F.

protocol 'released': the authors' code. c_ik is of the model with which a round
begins: the code reads it from a file before the trained one is written there.
delta has the distance of a class to the nearest one, not that to any other.

New client: it begins as all others and trains near the p_k for one round, of
which nothing is sent.

Differs from the paper: the pull is that of the code, whose mean over F is not
in the paper. The learning rate of T is its own, and constant; in the code it is
that of the clients. The code leaves out a smaller last batch of a client.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model, own_examples, personalization
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Senders, Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Key, Params, Task, matmul
from fedjax_pfl.models import layers


class HParams(global_model.HParams):
  lam: float = field(10.0, rules.at_least(0), traced=True)
  tau: float = field(100.0, rules.at_least(0), traced=True)
  server_epochs: int = field(
    100, rules.count('epochs', '0: the means would never learn')
  )
  server_learning_rate: float = field(0.01, rules.above(0), traced=True)
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'prototypes', 'arxiv.org/abs/2401.03230'
FEDAVG_EQUIVALENT = None  # never: no model is sent
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('params',)
ACROSS_MODELS = ''
NOT_CLIPPED = 'whose server trains on the class means of each client'


class Server(NamedTuple):
  round: Array
  key: Array  # [2] bits of the key of the initial model
  trained: dict  # T
  is_known: Array  # [] whether a client ever sent means


class Client(NamedTuple):
  params: Params  # w_i


class Down(NamedTuple):
  round: Array
  prototypes: Array  # [Y, F] p
  is_known: Array


class Up(NamedTuple):
  means: Array  # [Y, F] c_ik
  present: Array  # [Y] 1 of a class that the client has


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedTGP."""
  is_released = hp.protocol == 'released'

  def init_server(rng):
    bits = jax.random.key_data(rng)
    width, classes = task.init(rng)['head']['kernel'].shape
    trained = init_prototypes(jax.random.fold_in(rng, 1), classes, width)
    return Server(jnp.zeros((), jnp.int32), bits, trained, jnp.array(False))

  def init_client(server, data, rng):
    return Client(task.init(jax.random.wrap_key_data(server.key)))

  def local_update(down, client, data, rng):
    def loss(params, batch, rng):
      f, logits = task.train_outputs(params, batch, rng)
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      apart = jnp.mean((f - down.prototypes[batch.y]) ** 2, axis=1)  # [B]
      pull = jnp.where(down.is_known, losses.masked_mean(apart, batch), 0)
      return cross_entropy + hp.lam * pull, {'cross_entropies': cross_entropy}

    params, info = hp.train.fit(
      task, client.params, data, rng, down.round, loss
    )
    size = hp.train.batch_size
    seen = client.params if is_released else params
    up = Up(*own_examples.class_means(task, seen, data, rng, size))
    return Client(params), up, info.metrics()

  def aggregate(server, up, senders):
    trained = train_prototypes(hp, server.trained, up, senders)
    is_known = server.is_known | jnp.any(up.present > 0)
    return Server(server.round + 1, server.key, trained, is_known)

  def personalize(server, client, data, rng):
    means = prototypes(server.trained)
    known = jnp.ones(len(means), bool)
    model = personalization.Templates(client.params, means, known)
    return {
      'personal': client.params,
      'prototypes': personalization.Euclidean(model),
    }

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: Down(
      server.round, prototypes(server.trained), server.is_known
    ),
    aggregate=aggregate,
    personalize=personalize,
    global_model=None,
  )
  return (Stage('fedtgp', hp.train.rounds, algorithm),)


# ---- The server's prototypes -------------------------------------------------


def init_prototypes(rng: Key, classes: int, width: int) -> dict:
  """Return the first T."""
  embeddings, hidden, last = jax.random.split(rng, 3)
  return {
    'embeddings': jax.random.normal(embeddings, (classes, width)),
    'hidden': layers.dense(hidden, width, width),
    'last': layers.dense(last, width, width),
  }


def prototypes(trained: dict) -> Array:
  """Return p_k = T(e_k) of all classes: [Y, F]."""

  def layer(of, z):
    return matmul(z, of['kernel']) + of['bias']

  hidden = jax.nn.relu(layer(trained['hidden'], trained['embeddings']))
  return layer(trained['last'], hidden)


def train_prototypes(
  hp: HParams, trained: dict, up: Up, senders: Senders
) -> dict:
  """Return T after its epochs on the means [C, Y, F] of the cohort."""
  delta = margin(hp, up, senders)

  def loss(trained, batch, rng):
    far = losses.norm(batch.x[:, None] - prototypes(trained))  # [B, Y]
    is_class = jax.nn.one_hot(batch.y, far.shape[1], dtype=far.dtype)
    return losses.masked_cross_entropy(-(far + delta * is_class), batch)

  return own_examples.fit_to_means(loss, trained, up, senders, hp)


def margin(hp: HParams, up: Up, senders: Senders) -> Array:
  """Return delta."""
  sums, number = senders.sum(Up(up.present[..., None] * up.means, up.present))
  centres = sums / jnp.maximum(number, 1)[:, None]
  far = losses.norm(centres[:, None] - centres)  # [Y, Y]
  is_there = number > 0
  is_pair = is_there & is_there[:, None] & ~jnp.eye(len(far), dtype=bool)
  if hp.protocol == 'released':
    far = jnp.where(is_pair, far, jnp.inf).min(axis=1)  # to the nearest
    is_pair = is_pair.any(axis=1)
  largest = jnp.where(is_pair, far, 0).max()
  return jnp.where(is_pair.any(), jnp.minimum(largest, hp.tau), hp.tau)

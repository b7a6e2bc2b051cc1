"""FedGen (Zhu, Hong and Zhou 2021): a generator of features teaches all heads.

  w_i <- SGD_tau(w -> L_i(w) + lam mean CE(h(G(e, y)), y)), h the head of w
  w   <- sum_i a_i w_i / sum_i a_i          i in the cohort S, a_i = 1 or n_i
  G   <- Adam(G -> mean CE(h(G(e, y)), y)), h the head of the new w

Labels y are drawn by their shares among the examples of the last cohort, which
sends its counts, noise e from U(0, 1); a batch has `batch_size` of both, drawn
anew in every step, of which the server takes `server_steps` in a round. G is a
layer of `hidden` units of (e, one-hot y), BatchNorm by the batch, ReLU, and a
linear layer to the F features. Heads are linear, so h is the ensemble
sum_i a_i h_i(z) of the paper. G and its optimiser go on from round to round. In
the first round there is no second term.

With shared 'head' a client keeps the body of its model, and heads alone are
averaged: no message has the shape of a body, but for its F.

New client: it has w; with shared 'head' its body begins as that of all others
and trains with h and G for one round, of which nothing is sent.

Differs from the paper: its code weighs a client's head by the client's share of
a label, adds a term for the diversity of what is generated and one that distils
each batch, lets lam and the learning rate of G decay, and gives the clients a G
with running statistics. HtFLlib, which shares heads, does not save the G that
it has trained: there G stays as it began.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import global_model, local_training, personalization
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Array, Batch, Key, Params, Task, matmul
from fedjax_pfl.data.label_counts import label_counts
from fedjax_pfl.models.ops import layers


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  lam: float = 1.0
  shared: str = 'full'  # or 'head'
  noise: int = 32  # numbers in e
  hidden: int = 64
  server_steps: int = 100
  server_learning_rate: float = 0.005


RULES = {
  'lam': rules.at_least(0),
  'shared': rules.one_of(('full', 'head'), 'a part of the model'),
  'noise': rules.count('numbers', '0: all features of a class would be equal'),
  'hidden': rules.count('units'),
  'server_steps': rules.count('steps', '0: the generator would never learn'),
  'server_learning_rate': rules.above(0),
}
FAMILY, PAPER = 'distillation', 'arxiv.org/abs/2105.10056'
FEDAVG_EQUIVALENT = {'lam': 0.0}
PRIVATE_LEAVES = ()
ACROSS_MODELS = 'hp.shared=head'
NOT_CLIPPED = 'whose server draws labels by counts, which a clip makes shares'


class Server(NamedTuple):
  round: Array
  params: Params  # w; with shared 'head' its body stays the first one
  generator: dict  # G
  opt_state: optax.OptState | tuple[()]  # of G
  shares: Array  # [Y] of the labels; 0 before the first round


class Up(NamedTuple):
  params: Params  # w_i, or its head
  counts: Array  # [Y] examples of each class


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedGen."""
  rules.check(hp, RULES)
  size = hp.train.batch_size
  shared = trees.part_mask(task, hp.shared, 'hp.shared')
  private = trees.invert(shared)
  tx = optax.adam(hp.server_learning_rate)

  def init_server(rng):
    params = task.init(rng)
    width, classes = params['head']['kernel'].shape
    first, last = jax.random.split(jax.random.fold_in(rng, 1))
    hidden = layers.dense_and_norm(first, hp.noise + classes, hp.hidden)
    del hidden['bias']  # BatchNorm takes it away: Adam would add up rounding
    generator = {
      'hidden': hidden,
      'last': layers.dense(last, hp.hidden, width),
    }
    clock, state = jnp.zeros((), jnp.int32), tx.init(generator)
    return Server(clock, params, generator, state, jnp.zeros(classes))

  def generated_loss(generator, head, shares, rng):
    """Return mean CE(h(G(e, y)), y) of a batch that is drawn."""
    labels, noise = drawn(rng, shares, size, hp.noise)
    z = generate(generator, labels, noise)
    logits = task.classify({'head': head}, z)
    return losses.batch_loss(logits, Batch(z, labels, jnp.ones(size, z.dtype)))

  def whole(server, client):
    return trees.combine(client, server.params)

  def local_update(down, client, data, rng):
    weight = jnp.where(jnp.any(down.shares > 0), hp.lam, 0)

    def loss(params, batch, rng):
      logits = task.train_outputs(params, batch, rng).logits
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      second = jax.random.fold_in(rng, 1)
      args = down.generator, params['head'], down.shares, second
      total = cross_entropy + weight * generated_loss(*args)
      return total, {'cross_entropies': cross_entropy}

    start = whole(down, client)
    params, info = hp.train.fit(task, start, data, rng, down.round, loss)
    counts = label_counts(data, task.num_classes).astype(float)
    up = Up(trees.select(params, shared), counts)
    return trees.select(params, private), up, info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)

  def aggregate(server, up, senders):
    clock, params = averaging.aggregate(server, up.params, senders)
    counts = senders.sum(up.counts)
    shares = counts / jnp.maximum(jnp.sum(counts), 1)

    def step(number, state):
      generator, opt_state = state
      rng = jax.random.fold_in(senders.rng, number)
      grads = jax.grad(generated_loss)(generator, params['head'], shares, rng)
      updates, opt_state = tx.update(grads, opt_state)
      return optax.apply_updates(generator, updates), opt_state

    start = server.generator, server.opt_state
    trained = lax.fori_loop(0, hp.server_steps, step, start)
    return Server(clock, params, *trained, shares)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: trees.select(server.params, private),
    download=lambda server, client: server._replace(
      params=trees.select(server.params, shared), opt_state=()
    ),
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: personalization.views(
      task, whole(server, client), data, rng, hp.finetune
    ),
  )
  if hp.shared == 'head':
    algorithm = algorithm._replace(global_model=None)
  return (Stage('fedgen', hp.train.rounds, algorithm),)


def drawn(
  rng: Key, shares: Array, size: int, noise: int
) -> tuple[Array, Array]:
  """Return labels y [B], drawn by the shares, and noise e [B, noise]."""
  of_labels, of_noise = jax.random.split(rng)
  labels = jax.random.categorical(
    of_labels, jnp.log(shares + 1e-30), shape=(size,)
  )
  return labels, jax.random.uniform(of_noise, (size, noise))


def generate(generator: dict, labels: Array, noise: Array) -> Array:
  """Return features G(e, y): [B, F]."""
  hidden, last = generator['hidden'], generator['last']
  classes = len(hidden['kernel']) - noise.shape[1]
  given = jax.nn.one_hot(labels, classes, dtype=noise.dtype)
  z = matmul(jnp.concatenate([noise, given], axis=1), hidden['kernel'])
  z = (z - z.mean(0)) / jnp.sqrt(z.var(0) + 1e-5)
  z = jax.nn.relu(hidden['scale'] * z + hidden['shift'])
  return matmul(z, last['kernel']) + last['bias']

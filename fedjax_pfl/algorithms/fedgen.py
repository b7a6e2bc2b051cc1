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

protocol 'released': the authors' code. A client's loss has a third term,
distil mean KL(sg(softmax(h(G(e, y_b)))) || softmax(z_b)), for its own labels.
In round t both weights are times 0.98^t, and at least 1e-4. G learns from the
heads h_i of the cohort, and to differ where its noise differs:

  G <- Adam(G -> sum_i (mean_b u_i(y_b)) (mean_b CE(h_i(G(e_b, y_b)), y_b))
                 + exp(-mean_bc mean(e_b - e_c)^2 mean|G_b - G_c|))

  u_i(y) = (1 + tau n_iy) / sum_j (1 + tau n_jy)    n_iy examples of class y

(a product of two means, since the code multiplies a row by a column), with
decay 0.01 of G and a rate times 0.98^t. All classes that the cohort has are
drawn alike. BatchNorm of a client's G has running statistics. For MNIST the
code has lam 10, distil 10, hidden 256, and 50 steps at the rate 3e-4.

Differs from the paper: heads have the weights a_i. Differs from the code: tau
counts passes, and not batches; a client draws classes of the last cohort, and
not of all clients, and both terms in all of its epochs, not in the first 20;
its rate is not times 0.99 in each round. HtFLlib, which shares heads, does not
save the G that it has trained.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Batch, Key, Params, Task, matmul
from fedjax_pfl.data.client_data import label_counts
from fedjax_pfl.models import layers


class HParams(global_model.HParams):
  lam: float = field(1.0, rules.at_least(0), traced=True)
  shared: str = field(  # or 'head'
    'full', rules.one_of(('full', 'head'), 'a part of the model')
  )
  noise: int = field(  # numbers in e
    32, rules.count('numbers', '0: all features of a class would be equal')
  )
  hidden: int = field(64, rules.count('units'))
  server_steps: int = field(
    100, rules.count('steps', '0: the generator would never learn')
  )
  server_learning_rate: float = field(0.005, rules.above(0), traced=True)
  protocol: str = field('paper', rules.protocol())  # or 'released'
  distil: float = field(10.0, rules.at_least(0), traced=True)  # released


PARTS = {'distil': ('protocol', 'released')}
DECAY = 0.98  # released: of both terms and of the rate of G, in a round
FAMILY, PAPER = 'distillation', 'arxiv.org/abs/2105.10056'
FEDAVG_EQUIVALENT = {'lam': 0.0}
NEEDS_CLASSES = True
PRIVATE_LEAVES = ()
ACROSS_MODELS = 'hp.shared=head'
NOT_CLIPPED = 'whose server draws labels by counts, which a clip makes shares'


class Server(NamedTuple):
  round: Array
  params: Params  # w; with shared 'head' its body stays the first one
  generator: dict  # G
  opt_state: optax.OptState | tuple[()]  # of G
  shares: Array  # [Y] of the labels; 0 before the first round
  # released: running mean and variance [H] of BatchNorm in G
  moments: tuple[Array, ...] = ()


class Up(NamedTuple):
  params: Params  # w_i, or its head
  counts: Array  # [Y] examples of each class


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedGen."""
  size = hp.train.batch_size
  is_released = hp.protocol == 'released'
  shared = trees.part_mask(task, hp.shared, 'hp.shared')
  private = trees.invert(shared)
  tx = optax.adam(hp.server_learning_rate)
  if is_released:
    tx = optax.adam(
      lambda count: (
        hp.server_learning_rate * DECAY ** (count // hp.server_steps)
      )
    )
    tx = optax.chain(optax.add_decayed_weights(0.01), tx)

  def init_server(rng):
    params = task.init(rng)
    width, classes = params['head']['kernel'].shape
    first, last = jax.random.split(jax.random.fold_in(rng, 1))
    hidden = layers.dense_and_norm(first, hp.noise + classes, hp.hidden)
    if not is_released:  # BatchNorm takes it away: Adam would add up rounding
      del hidden['bias']
    generator = {
      'hidden': hidden,
      'last': layers.dense(last, hp.hidden, width),
    }
    clock, state = jnp.zeros((), jnp.int32), tx.init(generator)
    moments = ()
    if is_released:
      moments = jnp.zeros(hp.hidden), jnp.ones(hp.hidden)
    return Server(clock, params, generator, state, jnp.zeros(classes), moments)

  def outputs(head, z):
    return task.classify({'head': head}, z)

  def generated_loss(generator, head, shares, rng, moments=()):
    """Return mean CE(h(G(e, y)), y) of a batch that is drawn."""
    labels, noise = drawn(rng, shares, size, hp.noise)
    z, _ = generate(generator, labels, noise, moments)
    batch = Batch(z, labels, jnp.ones(size, z.dtype))
    return losses.batch_loss(outputs(head, z), batch)

  def released_loss(generator, heads, weights, is_there, rng):
    """Return the loss of G by the heads [C, ..], and the moments of a batch.

    weights: [C, Y] of the clients, which are u_i(y).
    """
    labels, noise = drawn(rng, is_there, size, hp.noise)
    z, moments = generate(generator, labels, noise)
    log_p = jax.nn.log_softmax(jax.vmap(outputs, (0, None))(heads, z))
    chosen = log_p[:, jnp.arange(size), labels]  # [C, B]
    taught = -jnp.sum(weights[:, labels].mean(1) * chosen.mean(1))
    apart = jnp.mean((noise[:, None] - noise) ** 2, axis=2)  # [B, B]
    apart *= jnp.mean(jnp.abs(z[:, None] - z), axis=2)
    return taught + jnp.exp(-jnp.mean(apart)), moments

  def distilled_loss(down, head, logits, batch, rng):
    """Return mean KL of the outputs for G of the labels of the batch."""
    _, noise = drawn(rng, down.shares, len(batch.y), hp.noise)
    z, _ = generate(down.generator, batch.y, noise, down.moments)
    return losses.divergence(outputs(head, z), logits, batch)

  def whole(server, client):
    return trees.combine(client, server.params)

  def local_update(down, client, data, rng):
    is_taught = jnp.any(down.shares > 0)

    def weight(value):
      if is_released:
        value = jnp.maximum(value * DECAY**down.round, 1e-4)
      return jnp.where(is_taught, value, 0)

    lam = weight(hp.lam)

    def loss(params, batch, rng):
      logits = task.train_outputs(params, batch, rng).logits
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      second, third = (jax.random.fold_in(rng, number) for number in (1, 2))
      total = cross_entropy + lam * generated_loss(
        down.generator, params['head'], down.shares, second, down.moments
      )
      if is_released:
        total += weight(hp.distil) * distilled_loss(
          down, params['head'], logits, batch, third
        )
      return total, {'cross_entropies': cross_entropy}

    start = whole(down, client)
    params, info = hp.train.fit(task, start, data, rng, down.round, loss)
    counts = label_counts(data, task.num_classes).astype(float)
    up = Up(trees.select(params, shared), counts)
    return trees.select(params, private), up, info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update, whole)

  def aggregate(server, up, senders):
    clock, params = averaging.aggregate(server, up.params, senders)
    counts = senders.sum(up.counts)
    shares = counts / jnp.maximum(jnp.sum(counts), 1)
    if is_released:
      seen = senders.masked(1.0)[:, None] * (1 + hp.train.epochs * up.counts)
      weights = seen / jnp.maximum(jnp.sum(seen, axis=0), 1)  # [C, Y]
      is_there = (counts > 0).astype(counts.dtype)

    def step(number, state):
      generator, opt_state, moments = state
      rng = jax.random.fold_in(senders.rng, number)
      if is_released:
        grads, new = jax.grad(released_loss, has_aux=True)(
          generator, up.params['head'], weights, is_there, rng
        )
        unbiased = new[0], new[1] * size / max(size - 1, 1)
        moments = optax.incremental_update(unbiased, moments, 0.1)
      else:
        grads = jax.grad(generated_loss)(generator, params['head'], shares, rng)
      updates, opt_state = tx.update(grads, opt_state, generator)
      return optax.apply_updates(generator, updates), opt_state, moments

    start = server.generator, server.opt_state, server.moments
    generator, opt_state, moments = lax.fori_loop(
      0, hp.server_steps, step, start
    )
    shares = is_there if is_released else shares
    return Server(clock, params, generator, opt_state, shares, moments)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=lambda server, data, rng: trees.select(server.params, private),
    download=lambda server, client: server._replace(
      params=trees.select(server.params, shared), opt_state=()
    ),
    aggregate=aggregate,
  )
  if hp.shared == 'full':
    algorithm = algorithm._replace(global_model=lambda server: server.params)
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


def generate(
  generator: dict, labels: Array, noise: Array, moments: tuple = ()
) -> tuple[Array, tuple[Array, Array]]:
  """Return features G(e, y): [B, F], and the moments that normalised them.

  moments: mean and variance of the hidden layer; (): those of the batch.
  """
  hidden, last = generator['hidden'], generator['last']
  classes = len(hidden['kernel']) - noise.shape[1]
  given = jax.nn.one_hot(labels, classes, dtype=noise.dtype)
  z = matmul(jnp.concatenate([noise, given], axis=1), hidden['kernel'])
  if 'bias' in hidden:
    z = z + hidden['bias']
  mean, var = moments or (z.mean(0), z.var(0))
  z = (z - mean) / jnp.sqrt(var + 1e-5)
  z = jax.nn.relu(hidden['scale'] * z + hidden['shift'])
  return matmul(z, last['kernel']) + last['bias'], (mean, var)

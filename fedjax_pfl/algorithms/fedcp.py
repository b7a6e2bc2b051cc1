"""FedCP (Zhang et al. 2023): a gate divides features between two heads.

  (b_i, p_i, v_i) <- SGD_tau from (b, p_i, v), client i in the cohort S, of
    L(p_i(r f) + h((1 - r) f)) + lam MMD^2(f, f_b)          f = b_i(x)
  (b, h, v) <- sum_i a_i (b_i, (h + p_i) / 2, v_i) / sum_i a_i

  (r, 1 - r) = softmax of pairs relu(LN(A (f c_i / |c_i|) + a))   v = (A, a, LN)
  c_i        = sum_k W_k, W_k the row of class k in p_i as the round began
  MMD^2      = mean k(f, f') + mean k(f_b, f_b') - 2 mean k(f, f_b')
  k(u, w)    = exp(-|u - w|^2 / 2s) summed over s = 10, 15, 20, 50

with weights a_i = 1 or n_i. A batch's features under the model that the client
received are f_b; the head h is not trained. A client keeps its head p_i, which
begins as the initial one. Who knows h can compute p_i from the upload: nothing
of a client is private. The view `personal` is p_i(r f) + h((1 - r) f).

protocol 'released': the authors' code. Gumbel noise is added to both numbers of
a pair, in training and in testing. c_i is drawn from U(0, 1) until the client
has taken part.

New client: p_i begins as h is by then, and learns for one round, of which
nothing is sent.

Differs from the paper: the weights a_i are 1 by default; momentum, where
`train` has it, is that of all parts. In the authors' code clients that sit out
keep the h and v of their last round; here all download them anew. It leaves out
a smaller last batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.random import gumbel

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Batch, Params, Task, matmul
from fedjax_pfl.models import layers


class HParams(global_model.HParams):
  lam: float = field(5.0, rules.at_least(0), traced=True)  # of MMD^2
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2307.01217'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()  # p_i stays, but (h + p_i) / 2 tells it
BANDWIDTHS = (10, 15, 20, 50)
Gate = dict[str, Array]  # v


class Upload(NamedTuple):
  params: Params  # b_i and (h + p_i) / 2
  gate: Gate


class Server(NamedTuple):
  round: Array
  params: Params  # b and h
  gate: Gate


class Client(NamedTuple):
  personal_head: Params  # p_i, in the structure of the model
  context: Array  # [F] c_i


class Separated(NamedTuple):
  """The view that predicts by p_i(r f) + h((1 - r) f)."""

  params: Params
  gate: Gate
  client: Client
  seed: Array | None  # [] of the noise; released
  rule = (
    'logits = p(r f) + h((1 - r) f), p the head of client/, h that of params/, '
    'r from gate/ and client/: FedCP'
  )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedCP."""
  body = trees.invert(task.is_head)
  is_noisy = hp.protocol == 'released'
  averaging = global_model.federated_averaging(task, hp)

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    size = len(params['head']['kernel'])
    gate = layers.dense_and_norm(jax.random.fold_in(rng, 1), size, 2 * size)
    return Server(clock, params, gate)

  def init_client(server, data, rng):
    head = trees.select(server.params, task.is_head)
    context = context_of(head)
    if is_noisy:
      context = jax.random.uniform(rng, context.shape, context.dtype)
    return Client(head, context)

  def outputs(params, head, gate, context, f, key):
    noise = gumbel(key, (len(f), 2, f.shape[1])) if is_noisy else 0.0
    chosen = share(gate, f, context, noise)
    personal = task.classify(head, chosen * f)
    return personal + task.classify(params, (1 - chosen) * f)

  def local_update(down, client, data, rng):
    def loss(tree, batch, rng):
      encoder, head, gate = tree  # b_i, p_i, v_i
      model = trees.combine(encoder, down.params)
      f = task.train_outputs(model, batch, rng).features
      received = task.train_outputs(down.params, batch, rng).features
      key = jax.random.fold_in(rng, 1)
      logits = outputs(down.params, head, gate, client.context, f, key)
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      total = cross_entropy + hp.lam * discrepancy(f, received, batch)
      return total, {'cross_entropies': cross_entropy}

    start = trees.select(down.params, body), client.personal_head, down.gate
    tree, info = hp.train.fit(task, start, data, rng, down.round, loss)
    encoder, head, gate = tree
    halves = jax.tree.map(
      lambda p, h: (p + h) / 2, head, trees.select(down.params, task.is_head)
    )
    client = Client(head, context_of(head))
    up = Upload(trees.combine(encoder, halves), gate)
    return client, up, info.metrics()

  def aggregate(server, up, senders):
    mean = senders.mean(up, hp.train.weights(senders.counts))
    return Server(server.round + 1, mean.params, mean.gate)

  def personalize(server, client, data, rng):
    seed = jax.random.bits(rng) if is_noisy else None
    return {'personal': Separated(server.params, server.gate, client, seed)}

  def predict(view, x, mask):
    f = task.features(view.params, x, mask)
    head, context = view.client
    key = jax.random.key(view.seed) if is_noisy else None
    return outputs(view.params, head, view.gate, context, f, key)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: server,
    local_update=local_update,
    aggregate=aggregate,
    personalize=personalize,
    predict=predict,
    global_model=None,
  )
  return (Stage('fedcp', hp.train.rounds, algorithm),)


def context_of(head: Params) -> Array:
  """Return c_i [F], the sum of the rows of all classes."""
  return head['head']['kernel'].sum(1)


def share(gate: Gate, f: Array, context: Array, noise: Array | float) -> Array:
  """Return r [B, F] of features f [B, F], with noise [B, 2, F] or 0."""
  norm = jnp.sqrt(jnp.maximum(jnp.sum(context**2), 1e-24))
  z = matmul(f * (context / norm), gate['kernel']) + gate['bias']
  z = z - z.mean(1, keepdims=True)
  z = z / jnp.sqrt(jnp.square(z).mean(1, keepdims=True) + 1e-5)
  z = jax.nn.relu(gate['scale'] * z + gate['shift'])
  pairs = z.reshape(len(f), 2, -1) + noise
  return jax.nn.sigmoid(pairs[:, 0] - pairs[:, 1])


def discrepancy(f: Array, received: Array, batch: Batch) -> Array:
  """Return MMD^2 of the features [B, F] of a batch, without its padding."""
  weights = batch.mask / jnp.maximum(batch.mask.sum(), 1)

  def mean_kernel(u, w):
    products = matmul(2 * u, w.T)
    squares = jnp.sum(u**2, 1)[:, None] + jnp.sum(w**2, 1) - products
    kernel = sum(jnp.exp(-squares / (2 * s)) for s in BANDWIDTHS)
    return matmul(matmul(weights, kernel), weights)

  within = mean_kernel(f, f) + mean_kernel(received, received)
  return within - 2 * mean_kernel(f, received)

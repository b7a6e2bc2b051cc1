"""GPFL (Zhang et al. 2023): features for the client, and features for all.

  (b_i, h_i, E_i, v_i) <- SGD_tau from (b, h_i, E, v), i in the cohort S, of
    L_i(h_i(C(f, p_i))) + mean CE(cos(C(f, g), E)) + lam mean |C(f, g) - e_y|
  (b, E, v) <- sum_i a_i (b_i, E_i, v_i) / sum_i a_i     a_i = 1 or n_i

  C(f, c) = relu((1 + gamma(c)) f + beta(c))     v: two layers LN(relu(A c + a))
  p_i     = sum_k n_ik / n_i e_k                 g = sum_k e_k / Y

E [Y, F] are embeddings e_k of the classes, drawn from N(0, 1); e_k in p_i, in g
and in the last term are those that the client received. E and v have the decay
`mu` added to that of `train`. A client keeps its head h_i; it begins as the
initial one. The view `personal` is h_i(C(f, p_i)).

protocol 'released': the authors' code. The last term is the norm of the whole
batch, |C(f, g) - e_y| with all its rows, and not a mean. p_i and g are of
embeddings that are older: for a client of the last cohort its own E_i, for
others the E of the round before; in the first round p_i and g are 0.

New client: h_i begins as the initial head and learns for one round, of which
nothing is sent.

Differs from the paper: the weights a_i are 1 by default; momentum, where
`train` has it, is that of all parts. The authors' loaders leave out a smaller
last batch, in testing and in p_i, too, and do not shuffle; here all examples
count.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model, local_training
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task, matmul
from fedjax_pfl.data.client_data import label_counts
from fedjax_pfl.models import layers


class HParams(global_model.HParams):
  lam: float = field(0.01, rules.at_least(0), traced=True)
  mu: float = field(0.1, rules.at_least(0), traced=True)
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2308.10279'
FEDAVG_EQUIVALENT = None  # never
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('head',)
Valve = dict[str, dict[str, Array]]  # v: the layers gamma and beta


class Shared(NamedTuple):
  """What is averaged."""

  params: Params  # the body
  embeddings: Array  # [Y, F] E
  valve: Valve


class Server(NamedTuple):
  round: Array
  params: Params  # b, and the initial head
  embeddings: Array
  valve: Valve
  previous: Array | tuple[()]  # [Y, F] E of the round before, or 0; released


class Client(NamedTuple):
  head: Params
  embeddings: Array | tuple[()] = ()  # [Y, F] E_i as last trained; released
  round: Array | tuple[()] = ()  # [] the clock after that; released


class Conditioned(NamedTuple):
  """The view that predicts by h_i(C(f, p_i))."""

  params: Params
  valve: Valve
  condition: Array  # [F] p_i
  rule = 'logits = the head of params/ on C(f, condition), of valve/: GPFL'


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of GPFL."""
  body = trees.invert(task.is_head)
  is_released = hp.protocol == 'released'
  averaging = global_model.averaging_of_part(task, hp, body)

  def init_server(rng):
    clock, params = averaging.init_server(rng)
    draw, rest = jax.random.split(jax.random.fold_in(rng, 1))
    shape = params['head']['kernel'].T.shape
    embeddings = jax.random.normal(draw, shape)
    keys = zip(('gamma', 'beta'), jax.random.split(rest), strict=True)
    size = shape[1]
    valve = {name: layers.dense_and_norm(key, size, size) for name, key in keys}
    older = jnp.zeros_like(embeddings) if is_released else ()
    return Server(clock, params, embeddings, valve, older)

  def init_client(server, data, rng):
    head = trees.select(server.params, task.is_head)
    if not is_released:
      return Client(head)
    never = jnp.full((), -1, jnp.int32)
    return Client(head, jnp.zeros_like(server.embeddings), never)

  def conditions(server, client, data):
    """Return p_i and g."""
    embeddings = server.embeddings
    if is_released:
      took_part = client.round == server.round
      embeddings = jnp.where(took_part, client.embeddings, server.previous)
    counts = label_counts(data, task.num_classes)
    shares = counts / jnp.maximum(counts.sum(), 1)
    return matmul(shares, embeddings), embeddings.mean(0)

  def local_update(down, client, data, rng):
    params = trees.combine(client.head, down.params)
    start = {'model': params, 'decayed': (down.embeddings, down.valve)}
    decay = hp.train.weight_decay + hp.mu
    decayed = hp.train._replace(weight_decay=decay)
    steps = {'model': hp.train, 'decayed': decayed}
    steps = {part: train.sgd(down.round) for part, train in steps.items()}
    tx = optax.partition(steps, {part: part for part in steps})
    loss = objective(task, hp, down, *conditions(down, client, data))
    tree, info = hp.train.fit(task, start, data, rng, down.round, loss, tx)
    params, (embeddings, valve) = tree['model'], tree['decayed']
    client = client._replace(head=trees.select(params, task.is_head))
    if is_released:
      client = Client(client.head, embeddings, down.round + 1)
    up = Shared(trees.select(params, body), embeddings, valve)
    return client, up, info.metrics()

  def aggregate(server, up, senders):
    mean = senders.mean(up, hp.train.weights(senders.counts))
    params = trees.combine(mean.params, server.params)
    older = server.embeddings if is_released else ()
    return Server(server.round + 1, params, mean.embeddings, mean.valve, older)

  def personalize(server, client, data, rng):
    params = trees.combine(client.head, server.params)
    condition, _ = conditions(server, client, data)
    return {'personal': Conditioned(params, server.valve, condition)}

  def predict(view, x, mask):
    f = conditioned(
      view.valve, task.features(view.params, x, mask), view.condition
    )
    return task.classify(view.params, f)

  algorithm = averaging._replace(
    init_server=init_server,
    init_client=init_client,
    local_update=local_update,
    aggregate=aggregate,
    personalize=personalize,
    predict=predict,
  )
  return (Stage('gpfl', hp.train.rounds, algorithm),)


def objective(
  task: Task, hp: HParams, down: Server, personal: Array, generic: Array
) -> local_training.Loss:
  """Return the sum of the three terms, with L_i of its own beside it."""

  def loss(tree, batch, rng):
    embeddings, valve = tree['decayed']
    f = task.train_outputs(tree['model'], batch, rng).features
    logits = task.classify(tree['model'], conditioned(valve, f, personal))
    cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
    of_all = conditioned(valve, f, generic)  # [B, F]
    cosines = matmul(unit(of_all), unit(embeddings).T)  # [B, Y]
    guide = losses.masked_cross_entropy(cosines, batch)
    apart = of_all - down.embeddings[batch.y]
    if hp.protocol == 'released':
      distance = losses.norm(batch.mask[:, None] * apart, axis=None)
    else:
      distance = losses.masked_mean(losses.norm(apart), batch)
    total = cross_entropy + guide + hp.lam * distance
    return total, {'cross_entropies': cross_entropy}

  return loss


def conditioned(valve: Valve, f: Array, condition: Array) -> Array:
  """Return C(f, c) of rows f [B, F] and one condition c [F]."""

  def layer(of):
    z = jax.nn.relu(matmul(condition, of['kernel']) + of['bias'])
    z = (z - z.mean()) / jnp.sqrt(z.var() + 1e-5)
    return of['scale'] * z + of['shift']

  return jax.nn.relu((1 + layer(valve['gamma'])) * f + layer(valve['beta']))


def unit(rows: Array) -> Array:
  return rows / jnp.maximum(losses.norm(rows, keepdims=True), 1e-12)

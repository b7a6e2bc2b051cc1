"""FD (Jeong et al. 2018): clients share the mean output of each class.

  w_i  <- SGD_tau(w -> L_i(w) + gamma mean_b CE(z_b, q_iy)), from w_i    i in S
  o_ik <- mean of softmax(z_b) of class k in all forward passes of the round
  q_ik <- mean of o_jk over j != i in the cohort S that have class k

z_b are the logits of example b. A client keeps its model w_i; all begin as the
same. q_ik is of the last round in which somebody else had class k, and the term
is 0 where nobody ever had. o_ik is taken while w_i moves. The
view `personal` is w_i; `aggregation` does nothing.

No message has the shape of the model of a client: all are [Y, Y].

New client: it begins as all others and trains with the q_k for one round, of
which nothing is sent.

Differs from the paper: there all clients take part in every round and have all
classes. The authors published no code. That of HtFLlib averages logits, not
probabilities, over all clients, i too: a cross-entropy with such weights, some
of which are negative, has no least value.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  gamma: float = field(1.0, rules.at_least(0), traced=True)


FAMILY, PAPER = 'distillation', 'arxiv.org/abs/1811.11479'
FEDAVG_EQUIVALENT = None  # never: no model is sent
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('params',)
ACROSS_MODELS = ''
NOT_CLIPPED = 'whose server divides by counts, which noise may bring near 0'


class Sums(NamedTuple):
  """What the server adds up, and then keeps."""

  outputs: Array  # [Y, Y] o_ik, and their sum
  counts: Array  # [Y] 1 of a class that the client has, and their number


class Server(NamedTuple):
  round: Array
  key: Array | tuple[()]  # [2] bits of the key of the initial model
  sums: Sums  # of each class, of the last round in which somebody had it
  rounds: Array  # [Y] the clock after that round


class Client(NamedTuple):
  params: Params  # w_i
  sent: Sums
  round: Array  # [] the clock after the round in which it sent that
  targets: Array  # [Y, Y] q_i of that round


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FD."""
  classes = task.num_classes

  def init_server(rng):
    none = Sums(jnp.zeros((classes, classes)), jnp.zeros(classes))
    bits, never = jax.random.key_data(rng), jnp.zeros(classes, jnp.int32)
    return Server(jnp.zeros((), jnp.int32), bits, none, never)

  def init_client(server, data, rng):
    params = task.init(jax.random.wrap_key_data(server.key))
    none = jax.tree.map(jnp.zeros_like, server.sums)
    return Client(params, none, jnp.zeros((), jnp.int32), none.outputs)

  def targets(down, client):
    """Return q_i [Y, Y]: as before of a class that it was alone with."""
    is_in = client.round == down.rounds  # [Y] its o_ik is in the sum
    counts = down.sums.counts - is_in * client.sent.counts
    outputs = down.sums.outputs - is_in[:, None] * client.sent.outputs
    new = outputs / jnp.maximum(counts, 1)[:, None]
    return jnp.where(counts[:, None] > 0, new, client.targets)

  def local_update(down, client, data, rng):
    wanted = targets(down, client)

    def loss(tree, batch, rng):
      params, rows = tree
      logits = task.train_outputs(params, batch, rng).logits
      cross_entropy = losses.batch_loss(logits, batch, task.example_loss)
      log_p = jax.nn.log_softmax(logits)
      apart = -jnp.sum(wanted[batch.y] * log_p, axis=1)  # [B]
      pull = hp.gamma * losses.masked_mean(apart, batch)
      new = jnp.append(jnp.exp(log_p), jnp.ones_like(log_p[:, :1]), axis=1)
      new = jnp.zeros_like(rows).at[batch.y].add(batch.mask[:, None] * new)
      gathered = losses.with_gradient(rows, new)
      reports = {'cross_entropies': cross_entropy}
      return cross_entropy + pull + gathered, reports

    tx = optax.partition(
      {'train': hp.train.sgd(down.round), 'add': optax.identity()},
      ('train', 'add'),
    )
    start = client.params, jnp.zeros((classes, classes + 1))
    (params, rows), info = hp.train.fit(
      task, start, data, rng, down.round, loss, tx
    )
    outputs = rows[:, :-1] / jnp.maximum(rows[:, -1:], 1)
    sent = Sums(outputs, (rows[:, -1] > 0).astype(outputs.dtype))
    client = Client(params, sent, down.round + 1, wanted)
    return client, sent, info.metrics()

  def aggregate(server, up, senders):
    new, clock = senders.sum(up), server.round + 1
    is_new = new.counts > 0
    sums = Sums(
      jnp.where(is_new[:, None], new.outputs, server.sums.outputs),
      jnp.where(is_new, new.counts, server.sums.counts),
    )
    rounds = jnp.where(is_new, clock, server.rounds)
    return Server(clock, server.key, sums, rounds)

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: server._replace(key=()),
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: {'personal': client.params},
    global_model=None,
  )
  return (Stage('fd', hp.train.rounds, algorithm),)

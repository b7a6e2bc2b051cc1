"""pFedHN (Shamsian et al. 2021): a network of the server makes every model.

  theta_i = h(v_i; phi)
  w_i    <- SGD_tau(theta_i; data of client i)          for i in the cohort S
  g      <- grad of  sum_i a_i <theta_i - w_i, h(v_i; phi)> / sum_i a_i
  phi, v <- SGD(phi, v; g min(1, clip / |g|) + decay (phi, v))

with a_i = 1 or n_i; theta_i - w_i is held fixed. h has a linear layer of width
`hidden`, then `layers` times ReLU and a linear one as wide, and a linear one to
all numbers of a model, whose bias begins as the initial model. The embeddings
v_i begin as normal noise. The server keeps phi and v of all clients, with their
momentum; a client has its number. It is evaluated by theta_i, in the views of
FedAvg.

New client: v_i begins as the mean of all and is trained alone, by local
training, with phi fixed.

Differs from the paper: there a round has one client, whose gradient it is; v_i
has K / 4 numbers (in the code one more). Momentum, decay and clip are of the
code, where all of phi begins at random: so would scales of BatchNorm here. A
client of the code takes 50 steps, each on the first batch of a new order, and
clips gradients, as clip_norm=50 does. The variant with heads that clients keep
(pFedHN-PC) is left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_pfl.client import global_model, optimisers
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Task, matmul
from fedjax_pfl.models import layers


class HParams(global_model.HParams):
  embedding: int = field(  # numbers in v_i
    13, rules.count('numbers', '0: all models would be equal')
  )
  hidden: int = field(100, rules.count('units'))
  layers: int = field(3, rules.count('layers', smallest=0))
  server_learning_rate: float = field(0.01, rules.above(0), traced=True)
  server_momentum: float = field(0.9, rules.momentum(), traced=True)
  server_decay: float = field(1e-3, rules.at_least(0), traced=True)
  server_clip: float = field(50.0, rules.above(0), traced=True)


FAMILY, PAPER = 'similarity', 'arxiv.org/abs/2103.04628'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = ()
NORM_STATISTICS = ('batch',)  # h makes what is learned
NEW = -1  # the number of a client that comes later


class Server(NamedTuple):
  round: Array
  made_by: dict  # phi, and the embeddings v [K, E]
  opt_state: optax.OptState


class Client(NamedTuple):
  number: Array  # [] its row of v
  embedding: Array  # [E] with which it begins; of a new client: v_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of pFedHN."""
  tx = optax.chain(
    optax.clip_by_global_norm(hp.server_clip),
    optax.add_decayed_weights(hp.server_decay),
    optimisers.sgd(hp.server_learning_rate, hp.server_momentum),
  )
  outline = jax.eval_shape(task.init, jax.random.key(0))
  zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), outline)
  to_tree = ravel_pytree(zeros)[1]

  def begun(made_by):
    return Server(jnp.zeros((), jnp.int32), made_by, tx.init(made_by))

  def init_server(rng):
    keys = jax.random.split(jax.random.fold_in(rng, 1), hp.layers + 2)
    sizes = [hp.embedding] + [hp.hidden] * (hp.layers + 1)
    bias = ravel_pytree(task.init(rng))[0]
    last = layers.dense(keys[-1], hp.hidden, len(bias))
    return begun(
      {
        'embeddings': jnp.zeros((1, hp.embedding)),
        'layers': list(map(layers.dense, keys, sizes, sizes[1:])),
        'last': last | {'bias': bias},
      }
    )

  def initialize(server, clients, data):
    # K is known from here on.
    made_by = server.made_by | {'embeddings': clients.embedding}
    numbers = jnp.arange(len(clients.embedding))
    return begun(made_by), clients._replace(number=numbers)

  def init_client(server, data, rng):
    def fitted():
      def loss(v, batch, rng):
        return task.loss(to_tree(made(server.made_by, v)), batch, rng)

      start = server.made_by['embeddings'].mean(0)
      return hp.train.fit(task, start, data, rng, 0 * server.round, loss)[0]

    drawn = lambda: jax.random.normal(rng, (hp.embedding,))
    return Client(jnp.array(NEW), lax.cond(server.round == 0, drawn, fitted))

  def model(server, client):
    row = server.made_by['embeddings'][client.number]
    v = jnp.where(client.number == NEW, client.embedding, row)
    return to_tree(made(server.made_by, v))

  def aggregate(server, up, senders):
    shares = senders.masked(hp.train.weights(senders.counts))
    shares = shares / jnp.maximum(jnp.sum(shares), 1e-30)
    trained = jax.vmap(lambda model: ravel_pytree(model)[0])(up)  # [C, P]

    def product(made_by):
      sent = made(made_by, made_by['embeddings'][senders.ids])
      change = lax.stop_gradient(sent) - trained
      return jnp.sum(shares[:, None] * change * sent)

    grads = jax.grad(product)(server.made_by)
    updates, state = tx.update(grads, server.opt_state, server.made_by)
    made_by = optax.apply_updates(server.made_by, updates)
    return Server(server.round + 1, made_by, state)

  algorithm = global_model.federated_averaging(task, hp, model_of=model)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=init_client,
    aggregate=aggregate,
  )
  return (Stage('pfedhn', hp.train.rounds, algorithm, initialize),)


def made(made_by: dict, v: Array) -> Array:
  """Return all numbers of the models h(v; phi) of v [..., E]: [..., P]."""

  def layer(of, z):
    return matmul(z, of['kernel']) + of['bias']

  first, *others = made_by['layers']
  z = layer(first, v)
  for hidden in others:
    z = layer(hidden, jax.nn.relu(z))
  return layer(made_by['last'], z)

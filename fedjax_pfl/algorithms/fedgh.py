"""FedGH (Yi et al. 2023): the server trains a head on the clients' class means.

  b_i, h_i <- SGD_tau(b_i, h; data of client i)     for i in the cohort S
  c_ik     <- mean of the features of class k of client i under b_i
  h        <- SGD_epochs(h -> mean_ik CE(h(c_ik), k))          on the server

A client keeps its body b_i and has the head h of the server; all begin as the
same model. The mean over ik is over the means of the cohort, which the server
takes in batches of `batch_size`. `aggregation` does nothing. A client is
evaluated by h on b_i, in the views of FedAvg.

No message has the shape of the body of a client, but for its F.

New client: its body begins as that of all others and trains with h for one
round, of which nothing is sent.

Differs from the paper: its server takes one step for each mean, client after
client; here it takes `server_epochs` in batches, as HtFLlib does. In the
authors' code the optimiser that steps on the server has the parameters of a
client, so that the head never moves; c_ik is the mean of the means of batches,
gradients are clipped as by clip_norm=50, and a client is scored with the head
that it has trained.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.client import global_model, own_examples
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Array, Params, Task


class HParams(global_model.HParams):
  server_epochs: int = field(
    100, rules.count('epochs', '0: the head would never learn')
  )
  server_learning_rate: float = field(0.01, rules.above(0), traced=True)


FAMILY, PAPER = 'prototypes', 'arxiv.org/abs/2303.13137'
FEDAVG_EQUIVALENT = None  # never
NEEDS_CLASSES = True
PRIVATE_LEAVES = ('body',)
ACROSS_MODELS = ''
NOT_CLIPPED = 'whose server trains on the class means of each client'


class Server(NamedTuple):
  round: Array
  key: Array | tuple[()]  # [2] bits of the key of the initial model
  head: Params  # h


class Client(NamedTuple):
  body: Params  # b_i, in the structure of the model


class Up(NamedTuple):
  means: Array  # [Y, F] c_ik
  present: Array  # [Y] 1 of a class that the client has


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedGH."""

  def init_server(rng):
    head = task.init(rng)['head']
    return Server(jnp.zeros((), jnp.int32), jax.random.key_data(rng), head)

  def init_client(server, data, rng):
    params = task.init(jax.random.wrap_key_data(server.key))
    return Client(trees.select(params, trees.invert(task.is_head)))

  def local_update(down, client, data, rng):
    start = whole(down, client)
    params, info = hp.train.fit(task, start, data, rng, down.round)
    size = hp.train.batch_size
    up = Up(*own_examples.class_means(task, params, data, rng, size))
    body = trees.select(params, trees.invert(task.is_head))
    return Client(body), up, info.metrics()

  def aggregate(server, up, senders):
    def loss(head, batch, rng):
      logits = task.classify({'head': head}, batch.x)
      return losses.batch_loss(logits, batch, task.example_loss)

    head = own_examples.fit_to_means(loss, server.head, up, senders, hp)
    return server._replace(round=server.round + 1, head=head)

  algorithm = global_model.federated_averaging(task, hp, local_update, whole)
  algorithm = algorithm._replace(
    init_server=init_server,
    init_client=init_client,
    download=lambda server, client: server._replace(key=()),
    aggregate=aggregate,
  )
  return (Stage('fedgh', hp.train.rounds, algorithm),)


def whole(server: Server, client: Client) -> Params:
  """Return the body of a client under the head of the server."""
  return {**client.body, 'head': server.head}

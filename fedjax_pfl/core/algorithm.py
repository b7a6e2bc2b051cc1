"""The two records of a federated method: `Algorithm` and `Stage`.

Of these pytrees of a method the engine reads only the clock `server.round`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree, Task

Server = Client = Down = Up = View = PyTree
Metrics = dict[str, Array]
# Metrics of a round; methods have no such names.
FINITE = 'finite'  # [C] whether what a client computed is
HAS_SENT = 'has_sent'  # [C], where clients may fail
JOINED = 'joined'  # [C], where a cohort is random
SERVER_FINITE = 'server_finite'  # [] whether the server is, after the round
# In PRIVATE_LEAVES of a method: the leaves of normalisation layers.
NORM = 'NORM'


def private_names(leaves: tuple[str, ...], task: Task) -> list[str]:
  """Return the names in the paths of private leaves, for this model."""
  norm = trees.leaf_names(trees.select(task.is_norm, task.is_norm))
  others = [name for name in leaves if name != NORM]
  return others + norm * (NORM in leaves)


class Senders(NamedTuple):
  """Who sent the uploads [C, ...] of a round, for `Algorithm.aggregate`.

  A client that fails has a row of zeros and count 0. The sums of this record
  leave it out; `jnp.mean` over the rows would not.
  """

  ids: Array  # [C] from 0 to K - 1
  counts: Array  # [C] training examples; 0 of a client that failed
  has_sent: Array  # [C] bool
  num_clients: int  # K, all that are registered
  shares: int = 1  # devices over which the rows are divided
  factor: float = 1.0  # scales sums when one row represents several clients
  rng: Key | None = None  # of the server in this round
  data: ClientData | None = None  # of the server: see `Algorithm.server_rows`

  def mean(self, uploads: Up, weights: Array) -> PyTree:
    """Return sum_c a_c x_c / sum_c a_c over the clients that sent."""
    return trees.weighted_mean(uploads, self.masked(weights), self.shares)

  def sum(self, uploads: Up, scale: Array | float = 1.0) -> PyTree:
    """Return sum_c s_c x_c over the clients that sent."""
    scale = jnp.broadcast_to(scale * self.factor, self.counts.shape)
    return trees.weighted_sum(uploads, self.masked(scale), self.shares)

  def segment_mean(
    self, uploads: Up, weights: Array, segments: Array, otherwise: PyTree
  ) -> PyTree:
    """Return the means of `trees.segment_mean` over the clients that sent."""
    weights = self.masked(weights)
    return trees.segment_mean(uploads, weights, segments, otherwise)

  def masked(self, weights: Array) -> Array:
    """Return the weights [C], 0 of clients that failed."""
    return jnp.where(self.has_sent, weights, 0)


class OneOf(NamedTuple):
  """A tree for each architecture; a client uses that of its group."""

  group: Array  # [] or [C] from 0 to G - 1
  of_groups: tuple[PyTree, ...]  # G of them

  @property
  def own(self) -> PyTree:
    """Return the tree of the group, outside of compiled functions."""
    return self.of_groups[int(self.group)]

  def with_own(self, group: int, tree: PyTree) -> 'OneOf':
    """Return the record with another tree of this group."""
    before, after = self.of_groups[:group], self.of_groups[group + 1 :]
    return self._replace(of_groups=(*before, tree, *after))


# Defaults of most methods. The engine compares some of them by identity.


def unchanged(
  server: Server, clients: Client, data: ClientData
) -> tuple[Server, Client]:
  """Return the states in which the stage before ended."""
  return server, clients


def as_stored(server: Server, data: ClientData) -> ClientData:
  """Return the training data unchanged."""
  return data


class Algorithm(NamedTuple):
  """A method as pure functions, each written for ONE client.

  The engine vmaps them over a cohort of C of the K clients.

  Args:
    init_server: rng -> server, whose clock `round` is 0.
    init_client: (server, data, rng) -> client, what one client keeps: before
      the first round, and after the last one of a client that comes later.
    download: (server, client) -> down, what the server sends to the client.
    local_update: (down, client, data, rng) -> (client, up, metrics): local
      training on data (index [N], count []). `up` is what the client sends;
      metrics are reported and have at least 'loss' [] and 'num_steps' [].
    aggregate: (server, up, senders) -> server, from the uploads [C, ...] of the
      cohort; adds 1 to the clock. Sums over clients are those of `Senders`,
      which leave out clients that fail: their rows are zeros, and a plain mean
      over rows is wrong. It is not applied where all fail.
    personalize: (server, client, data, rng) -> {name: view}, the models by
      which the client is evaluated, from its training data alone.
    predict: (view, x, mask) -> logits [B, Y] of inputs [B, ...]; mask [B] is 0
      for padding.
    respond: (server, clients, up, senders) -> clients, at the end of a round:
      what the server keeps for each of the senders [C, ...] until it sends
      that in the next download. Each may depend on the uploads of all. A client
      that failed keeps what it had. None: nothing.
    global_model: server -> view, the one model of the server, which is
      evaluated on the whole test set; None if the server has no such model.
    server_rows: P -> which of all P training examples `aggregate` reads, as
      `senders.data`; None: none.

  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> fedavg = pfl.algorithm('fedavg')
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> server = stage.algorithm.init_server(jax.random.key(0))
  >>> int(server.round)
  0
  """

  init_server: Callable[[Key], Server]
  init_client: Callable[[Server, ClientData, Key], Client]
  download: Callable[[Server, Client], Down]
  local_update: Callable[
    [Down, Client, ClientData, Key], tuple[Client, Up, Metrics]
  ]
  aggregate: Callable[[Server, Up, Senders], Server]
  personalize: Callable[[Server, Client, ClientData, Key], dict[str, View]]
  predict: Callable[[View, Array, Array], Array]
  respond: Callable[[Server, Client, Up, Senders], Client] | None = None
  global_model: Callable[[Server], View] | None = None
  server_rows: Callable[[int], np.ndarray] | None = None


class Stage(NamedTuple):
  """Rounds of one algorithm.

  Args:
    name: of the stage, in logs and results.
    rounds: T, how many.
    algorithm: of all these rounds.
    initialize: (server, clients, data) -> (server, clients), the states with
      which the stage begins, from those in which the stage before ended; the
      first stage is handed fresh ones. `data` are those of all K clients.
    validate_clients: data -> None; raises BadInput for clients whose examples
      the method cannot use.
    prepare_data: (server, data) -> data, what the rounds train on. A resumed
      run calls it again.
    initial_broadcast: server -> the part of each download that does not change
      in this stage; it is sent once, to all clients.
    full_participation: whether all K clients take part in every round.
    keep_best: models [K, ...] -> models [K, ...]: the scores of what it returns
      are stored at the end of a run. It is given, of each client, the model
      (view 'initial') of its best round by TEST accuracy, the start among them,
      and the later of equal ones: the public code of a published table does so.

  >>> fedavg = pfl.algorithm('fedavg')
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=10)
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> stage.name, stage.rounds
  ('fedavg', 32)
  """

  name: str
  rounds: int
  algorithm: Algorithm
  initialize: Callable[[Server, Client, ClientData], tuple[Server, Client]] = (
    unchanged
  )
  validate_clients: Callable[[ClientData], None] = lambda data: None
  prepare_data: Callable[[Server, ClientData], ClientData] = as_stored
  initial_broadcast: Callable[[Server], PyTree] = lambda server: ()
  full_participation: bool = False
  keep_best: Callable[[View], View] | None = None

"""The two records of a federated method: `Algorithm` and `Stage`.

Server, Client, Down, Up and View are pytrees of the method. Of these the engine
reads only the clock `server.round`.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedjax_pfl.core.types import Array, ClientData, Key, PyTree

Server = Client = Down = Up = View = PyTree
Metrics = dict[str, Array]


def as_aggregated(server: Server, data: ClientData, key: Key) -> Server:
  """Return the server unchanged."""
  del data, key
  return server


class Algorithm(NamedTuple):
  """A method as pure functions, each written for ONE client.

  The engine vmaps them over a cohort of C of the K clients.

  Args:
    init_server: key -> server, whose clock `round` is 0.
    init_client: (server, data, key) -> client, what one client keeps: before
      the first round, and after the last one of a client that comes later.
    download: (server, client) -> down, what the server sends to the client.
    local_update: (down, client, data, key) -> (client, up, metrics): local
      training on data (index [N], count []). `up` is what the client sends;
      metrics are reported and have at least 'loss' [] and 'num_steps' [].
    aggregate: (server, up, counts) -> server, from the uploads [C, ...] and the
      numbers of examples [C] of the cohort; adds 1 to the clock. Sums over
      clients are those of `trees`: `weighted_mean`, `weighted_sum` and
      `segment_mean`, which leave out clients that fail (client_dropout.py).
    personalize: (server, client, data, key) -> {name: view}, the models by
      which the client is evaluated, from its training data alone.
    predict: (view, x, mask) -> logits [B, Y] of inputs [B, ...]; mask [B] is 0
      for padding.
    post_aggregate: (server, data, key) -> server, after `aggregate`, with the
      training data of all clients (index [K, N]).
    global_model: server -> view, the one model of the server, which is
      evaluated on the whole test set; None if the server has no such model.

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
  aggregate: Callable[[Server, Up, Array], Server]
  personalize: Callable[[Server, Client, ClientData, Key], dict[str, View]]
  predict: Callable[[View, Array, Array], Array]
  post_aggregate: Callable[[Server, ClientData, Key], Server] = as_aggregated
  global_model: Callable[[Server], View] | None = None


def unchanged(
  server: Server, clients: Client, data: ClientData
) -> tuple[Server, Client]:
  """Return the states in which the stage before ended."""
  del data
  return server, clients


def any_clients(data: ClientData) -> None:
  """Accept all clients."""
  del data


def as_stored(server: Server, data: ClientData) -> ClientData:
  """Return the training data unchanged."""
  del server
  return data


def nothing(server: Server) -> tuple:
  """Return no leaf: there is no broadcast before the rounds."""
  del server
  return ()


class KeepBest(NamedTuple):
  """Every client keeps the model of its best round by TEST accuracy.

  The model with which the stage begins is one of them, and the later of equal
  ones is kept: the public code of a published table does so. A run evaluates
  those of its last stage.

  Args:
    view: the name of the view that clients keep.
    finish: models [K, ...] -> models [K, ...], of which the end of the run
      stores the scores, beside those of the last models.
  """

  view: str
  finish: Callable[[View], View]


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
    knows_seed: whether the functions hold the seed of the run in addition to
      their keys; a program compiled for one seed is then not used for another.
    note: a sentence that a run logs as the stage begins.
    keep_best: the models that clients keep of their best rounds, if any.

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
  validate_clients: Callable[[ClientData], None] = any_clients
  prepare_data: Callable[[Server, ClientData], ClientData] = as_stored
  initial_broadcast: Callable[[Server], PyTree] = nothing
  full_participation: bool = False
  knows_seed: bool = False
  note: str = ''
  keep_best: KeepBest | None = None

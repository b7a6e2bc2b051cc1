"""The record that a federated method is.

Server, Client, Down, Up and View are pytrees that the method owns and the
engine never opens, but for the clock `server.round`.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree

Server = Client = Down = Up = View = PyTree
Metrics = dict[str, Array]


def as_aggregated(server: Server, data: ClientData, key: Key) -> Server:
  """Return the server as it is: it learns from uploads alone."""
  del data, key
  return server


class Algorithm(NamedTuple):
  """A method as pure functions, each written for ONE client.

  `personalize` is handed training data alone: no example that a client is
  evaluated on can reach it.
  `post_aggregate` comes after `aggregate` and sees the training data of all
  clients. `global_model` is the one model of the server, to be evaluated on the
  whole test set; None: it has no whole model.
  """

  init_server: Callable[[Key], Server]
  init_client: Callable[[Server, ClientData, Key], Client]
  download: Callable[[Server, Client], Down]  # what crosses the network
  local_update: Callable[
    [Down, Client, ClientData, Key], tuple[Client, Up, Metrics]
  ]
  aggregate: Callable[[Server, Up, Array], Server]  # (.., Up[C], counts[C])
  personalize: Callable[[Server, Client, ClientData, Key], dict[str, View]]
  predict: Callable[[View, Array, Array], Array]  # (view, x, mask): [B, Y]
  post_aggregate: Callable[[Server, ClientData, Key], Server] = as_aggregated
  global_model: Callable[[Server], View] | None = None


def unchanged(
  server: Server, clients: Client, data: ClientData
) -> tuple[Server, Client]:
  """Enter a stage with the states in which the last one ended."""
  del data
  return server, clients


def any_clients(data: ClientData) -> None:
  """Accept whatever training examples clients have."""
  del data


def as_stored(server: Server, data: ClientData) -> ClientData:
  """Train on the examples as they are."""
  del server
  return data


def nothing(server: Server) -> tuple:
  """Send no more than each round sends."""
  del server
  return ()


class Stage(NamedTuple):
  """Rounds of one algorithm.

  `initialize` makes its states from those in which the stage before ended, the
  first stage from fresh ones; `prepare_data` makes what its rounds train on,
  and is asked again where a run goes on. Both see the training data of all
  clients. `validate_clients` refuses clients whose examples the method cannot
  use. `initial_broadcast` is the part of each download that clients have since
  the stage began: it is sent once, to all of them. `knows_seed`: its functions
  hold the seed of the run, beside the keys that they are given. What is
  compiled for one seed then serves no other.
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
  full_participation: bool = (
    False  # all clients in every round, whatever the fraction
  )
  knows_seed: bool = False
  note: str = ''  # a sentence for the user, as the stage begins


PROTOCOLS = ('paper', 'released')


def check_protocol(protocol: str, choices: tuple[str, ...] = PROTOCOLS) -> None:
  """Refuse what is neither the paper's text nor its public code."""
  if protocol not in choices:
    raise bad_input(
      'hp.protocol',
      got=protocol,
      expected='a reading of the paper',
      choices=choices,
      cause='a typing error',
    )

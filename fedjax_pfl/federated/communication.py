"""Bytes that cross the network or stay with clients, from the pytrees."""

from functools import partial
from typing import NamedTuple

import jax
from flax import struct

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Down, Server, Stage, Up
from fedjax_pfl.core.types import ClientData, PyTree
from fedjax_pfl.data.client_data import client_of


@struct.dataclass
class Counted:
  """A message that counts as `size` bytes, whatever its arrays take."""

  content: PyTree
  size: int = struct.field(pytree_node=False)


class Communication(NamedTuple):
  """Bytes of one client in one stage."""

  state: int  # kept between rounds
  up: int  # sent in a round
  down: int  # received in a round
  initial: int  # received as the stage begins


class Messages(NamedTuple):
  """What one client keeps, sends and receives in a stage: trees of shapes."""

  state: Client
  up: Up
  down: Down  # with what is received as the stage begins
  initial: PyTree


def messages(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> Messages:
  """Return the messages of a stage; the arguments may be shapes alone."""
  return jax.eval_shape(partial(of_first, stage), server, clients, data)


def of_first(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> Messages:
  """Return the messages of the first client, computed."""
  data = stage.prepare_data(server, data)
  client, key = trees.gather(clients, 0), jax.random.key(0)
  down = stage.algorithm.download(server, client)
  _, up, _ = stage.algorithm.local_update(down, client, client_of(data, 0), key)
  return Messages(client, up, down, stage.initial_broadcast(server))


def sizes_of(shapes: Messages) -> Communication:
  """Return the bytes of messages."""
  state, up, down, initial = map(num_bytes, shapes)
  return Communication(state, up, down - initial, initial)


def num_bytes(tree: PyTree) -> int:
  """Return the bytes of a message that crosses the network."""

  is_counted = lambda node: isinstance(node, Counted)
  size_of = lambda node: (
    node.size if is_counted(node) else trees.num_bytes(node)
  )
  return sum(map(size_of, jax.tree.leaves(tree, is_leaf=is_counted)))

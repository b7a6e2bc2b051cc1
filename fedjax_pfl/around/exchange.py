"""Uploads as changes, around any method: the frame of compression and privacy.

  d_i <- x_i - w                    client: its upload, less what both know
  message_i, e_i <- send(d_i, e_i)  e_i is what the client keeps, if anything
  d_i <- receive(message_i)         server, of all that are sent
  aggregate(w + d_i)                as the method aggregates

w is the server's model `params`, of which a leaf counts if clients download it
as it is and upload a new value of it; any other leaf of an upload is a change
of 0. We trace `download` to find which leaves of the model it sends unchanged;
their names travel in the structure of the messages, which has no bytes.
"""

import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from fedjax_pfl.around.lifted import NOTHING, Down, Part, Up, in_field, lifted
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Senders, Server, Stage
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Mask, PyTree

STREAM = 2**31 - 2  # of a client's key; methods use small numbers
AS_IT_IS = lambda change, memory, rng: (
  change,
  memory,
  {},
)  # `send` of a change
MODEL = 'params/'


@struct.dataclass
class Message:
  """What is sent, and the leaves of the model that both sides know."""

  content: PyTree
  known: tuple[str, ...] = struct.field(pytree_node=False)  # their paths
  rest: PyTree = ()  # of an upload: what is no change of them


class Sender(NamedTuple):
  """The state of a client that keeps something of what it sends."""

  own: Client  # of the method
  memory: PyTree


def exchanging(
  stage: Stage,
  field: str,
  send: Callable,
  receive: Callable,
  begin: Callable = lambda server, rng, previous: (),
  memory: Callable | None = None,
  of_model: bool = False,
  begins_anew: bool = False,
) -> Stage:
  """Return the stage in which clients send messages about changes.

  Args:
    stage: of any method.
    field: the name of what the server keeps, a field of its record.
    send: (change, memory, rng) -> (message, memory, metrics), of one client;
      any tree is a message. `memory` is () of clients that keep nothing.
    receive: (messages [C, ...], senders, value) -> (changes [C, ...], senders,
      value), on the server, with the value of its field.
    begin: (server, rng, previous) -> that value, as in `lifted.Part`.
    memory: change -> what a client keeps before its first round; None: nothing.
    of_model: whether a change is that of the server's model alone; the rest of
      an upload then goes as it is.
    begins_anew: whether the value and the memory do so in every stage.
  """
  method = stage.algorithm

  def sent(server, client, down):
    # If the method answers single uploads, an upload goes whole, as a change.
    known = () if method.respond else known_leaves(method, server, client)
    return Message(down, known)

  def opened(message, kept):
    return message.content

  def changed(up, down):
    """Return the change, and the rest of an upload."""
    mask = _known_mask(up, down.content, down.known)
    change = _changed(operator.sub, up, down.content, mask)
    if not of_model:
      return change, ()
    rest = trees.select(change, trees.invert(mask))
    return trees.select(change, mask), rest

  def send_change(up, down, kept, rng):
    change, rest = changed(up, down)
    content, kept, more = send(change, kept, jax.random.fold_in(rng, STREAM))
    return Message(content, down.known, rest), kept, more

  def receive_changes(server, up, senders, value):
    changes, senders, value = receive(up.content, senders, value)
    if of_model:
      changes = trees.combine(changes, up.rest)
    mask = _known_mask(changes, server, up.known, rows=1)
    return _changed(operator.add, changes, server, mask), senders, value

  def first(server, client, data, rng):
    """Return the memory of a client that has not sent anything."""

    def change():
      down = sent(server, client, method.download(server, client))
      rows = stage.prepare_data(server, data)
      _, up, _ = method.local_update(down.content, client, rows, rng)
      return changed(up, down)[0]

    return memory(jax.eval_shape(change))

  def again(server, clients, data, kept):
    def of_client(client, index, count):
      rows = data._replace(index=index, count=count)
      return first(server, client, rows, jax.random.key(0))

    after = jax.vmap(of_client)(clients, data.index, data.count)
    # The memory stays while changes have the leaves and shapes of before.
    return clients, kept if trees.kinds(after) == trees.kinds(kept) else after

  return lifted(
    stage,
    server=in_field(field, begin, begins_anew),
    client=Part(tuple, Sender, first, again) if memory else NOTHING,
    down=Down(sent, opened),
    up=Up(send_change, receive_changes),
  )


def as_one(
  change: PyTree, senders: Senders, refused: Callable[[str], BadInput]
) -> tuple[PyTree, Senders]:
  """Return the change of all as that of one client [1, ...], and its sender.

  A server that asks more of single uploads than their mean is refused.
  """

  def refuse(*args):
    raise refused('its server does more with single uploads than a mean')

  class Alone(Senders):
    mean = lambda self, uploads, weights: trees.gather(uploads, 0)
    sum = segment_mean = masked = refuse
    ids = property(refuse)

  counts, has_sent = jnp.ones_like(senders.counts[:1]), jnp.ones(1, bool)
  row = jax.tree.map(lambda leaf: leaf[None], change)
  return row, Alone(None, counts, has_sent, *senders[3:])


def refusal(stage: Stage, name: str, given: str, why: str) -> BadInput:
  """Return that an attack, or a rule, does not go with the method."""
  off = 'none' if name == 'attack' else 'uniform or examples'
  return bad_input(
    name,
    got=f'{given} with {stage.name}',
    expected=f'{off} with this method: {why}',
    choices=['fedavg', 'fedbabu', 'ditto'],
  )


def known_leaves(
  method: Algorithm, server: Server, client: Client
) -> tuple[str, ...]:
  """Return the paths of the server's model that clients download as they are.

  These are the outputs of `download` that are inputs of it.
  """
  if not hasattr(server, 'params'):
    return ()
  trace = jax.make_jaxpr(method.download, return_shape=True)
  closed, down = trace(server, client)
  program, names = closed.jaxpr, trees.leaf_names((server, client))
  inputs = dict(zip(names, program.invars, strict=True))
  outputs = zip(trees.leaf_names(down), program.outvars, strict=True)
  return tuple(
    name
    for name, output in outputs
    if name.startswith(MODEL) and inputs.get(f'0/{name}') is output
  )


def _changed(
  operation: Callable, tree: PyTree, holder: PyTree, mask: Mask
) -> PyTree:
  """Return the tree plus, or minus, the model that the holder has."""
  models = trees.named(holder)

  def change(path, is_known, leaf):
    return operation(leaf, models[_name(path)]) if is_known else leaf

  return jax.tree_util.tree_map_with_path(change, mask, tree)


def _known_mask(
  tree: PyTree, holder: PyTree, known: tuple[str, ...], rows: int = 0
) -> Mask:
  """Return True for the leaves that are new values of what is known.

  rows: 1 of a tree that is stacked over clients.
  """
  models = trees.named(holder)

  def is_known(path, leaf):
    name = _name(path)
    return name in known and models[name].shape == leaf.shape[rows:]

  return jax.tree_util.tree_map_with_path(is_known, tree)


def _name(path: tuple) -> str:
  return MODEL + trees.leaf_name(path).removeprefix(MODEL)

"""Lift a method: states with one more part, messages of another form.

  server  (s, a)    the method has s, the wrapper a; as (c, b) of a client
  down    opened(sent(download(s, c)), b)     what local training receives
  up      receive(s, send(x, b))              what the server aggregates

A wrapper says here what it adds to a state and does to a message.
"""

from collections import namedtuple
from collections.abc import Callable
from functools import cache, wraps
from typing import NamedTuple

from fedjax_pfl.core.algorithm import Stage, as_stored, unchanged


class Part(NamedTuple):
  """What a wrapper keeps in the state of the server, or of a client.

  Args:
    split: state -> (inner, kept): the method's state, and the wrapper's.
    join: (inner, kept) -> state.
    begin: of the server (inner, rng, previous) -> kept, as the rounds begin.
      `rng` is that of `init_server`; in a later stage it is None, and
      `previous` is what was kept as the stage before ended. Of one client
      (server, inner, data, rng) -> kept.
    again: of the clients (server, inner [K, ...], data, kept [K, ...]) ->
      (inner, kept), as a later stage begins.
    begins_anew: whether a stage begins with another value also where the method
      goes on with its states.
  """

  split: Callable
  join: Callable
  begin: Callable
  again: Callable = lambda server, inner, data, kept: (inner, kept)
  begins_anew: bool = False


class Down(NamedTuple):
  """What is sent in the place of a download.

  sent: (server, client, down) -> message.
  opened: (message, kept) -> down.
  """

  sent: Callable
  opened: Callable


class Up(NamedTuple):
  """What is sent in the place of an upload.

  send: (up, message, kept, rng) -> (up, kept, metrics), of one client; message
  is what it has received, before it was opened.
  receive: (server, up [C, ...], senders, kept) -> (up, senders, kept).
  """

  send: Callable
  receive: Callable


NOTHING = Part(
  lambda state: (state, ()), lambda inner, kept: inner, lambda *args: ()
)
AS_IT_IS = (
  Down(lambda server, client, down: down, lambda message, kept: message),
  Up(
    lambda up, message, kept, rng: (up, kept, {}),
    lambda server, up, senders, kept: (up, senders, kept),
  ),
)


def lifted(
  stage: Stage,
  server: Part = NOTHING,
  client: Part = NOTHING,
  down: Down = AS_IT_IS[0],
  up: Up = AS_IT_IS[1],
) -> Stage:
  """Return the stage with these parts of its states, and these messages."""
  method = stage.algorithm

  def inner_of(state, row):
    return server.split(state)[0], client.split(row)[0]

  def init_server(rng):
    inner = method.init_server(rng)
    return server.join(inner, server.begin(inner, rng, None))

  def init_client(state, data, rng):
    above, _ = server.split(state)
    inner = method.init_client(above, data, rng)
    return client.join(inner, client.begin(above, inner, data, rng))

  def download(state, row):
    inner = inner_of(state, row)
    return down.sent(*inner, method.download(*inner))

  def local_update(message, row, data, rng):
    inner, kept = client.split(row)
    received = down.opened(message, kept)
    inner, sent, metrics = method.local_update(received, inner, data, rng)
    sent, kept, more = up.send(sent, message, kept, rng)
    return client.join(inner, kept), sent, {**metrics, **more}

  def aggregate(state, sent, senders):
    inner, kept = server.split(state)
    sent, senders, kept = up.receive(inner, sent, senders, kept)
    return server.join(method.aggregate(inner, sent, senders), kept)

  def respond(state, rows, sent, senders):
    (above, more), (inner, kept) = server.split(state), client.split(rows)
    sent, senders, _ = up.receive(above, sent, senders, more)
    return client.join(method.respond(above, inner, sent, senders), kept)

  def personalize(state, row, data, rng):
    return method.personalize(*inner_of(state, row), data, rng)

  def global_model(state):
    return method.global_model(server.split(state)[0])

  def initialize(state, rows, data):
    (above, previous), (inner, kept) = server.split(state), client.split(rows)
    above, inner = stage.initialize(above, inner, data)
    inner, kept = client.again(above, inner, data, kept)
    begun = server.begin(above, None, previous)
    return server.join(above, begun), client.join(inner, kept)

  def prepare_data(state, data):
    return stage.prepare_data(server.split(state)[0], data)

  # The engine skips `unchanged` and `as_stored`, which it compares by identity.
  begins_anew = server.begins_anew or client.begins_anew
  goes_on = stage.initialize is unchanged and not begins_anew
  is_stored = stage.prepare_data is as_stored
  return replaced(
    stage,
    init_server=init_server,
    init_client=init_client,
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    personalize=personalize,
    respond=method.respond and respond,
    global_model=method.global_model and global_model,
  )._replace(
    initialize=unchanged if goes_on else initialize,
    prepare_data=as_stored if is_stored else prepare_data,
    initial_broadcast=lambda state: stage.initial_broadcast(
      server.split(state)[0]
    ),
  )


def replaced(stage: Stage, **functions: Callable | None) -> Stage:
  """Return the stage with other functions of its algorithm.

  They lead to those of the method, whose source its page shows.
  """
  method = stage.algorithm
  named = {
    name: function and wraps(getattr(method, name))(function)
    for name, function in functions.items()
  }
  return stage._replace(algorithm=method._replace(**named))


def in_field(field: str, begin: Callable, begins_anew: bool = False) -> Part:
  """Return one more field of the server's record, of this name."""

  def split(state):
    return type(state).of_method(*state[:-1]), state[-1]

  def join(inner, kept):
    return _record(type(inner), field)(*inner, kept)

  return Part(split, join, begin, begins_anew=begins_anew)


@cache
def _record(kind: type, field: str) -> type:
  """Return the record of a method's server with one more field."""
  joined = namedtuple(kind.__name__, (*kind._fields, field))
  joined.of_method = kind
  return joined

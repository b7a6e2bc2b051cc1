"""One more field for the state of the server, which the method does not see."""

from collections import namedtuple
from collections.abc import Callable
from functools import cache, wraps

from fedjax_pfl.core.algorithm import (
  Server,
  Stage,
  as_aggregated,
  as_stored,
  unchanged,
)
from fedjax_pfl.core.types import PyTree

# Functions of an `Algorithm` whose first argument is the server.
SERVED = 'init_client', 'download', 'personalize', 'respond', 'global_model'
# The engine knows these by their identity.
NOTHING = None, as_aggregated, as_stored, unchanged


def with_state(
  stage: Stage, field: str, begin: Callable, aggregate: Callable
) -> Stage:
  """Return the stage whose server has one more field, of this name.

  begin: (server, rng, previous) -> its value as the rounds begin. `rng` is that
  of `init_server`; in a later stage it is None, and `previous` is the value
  with which the stage before ended.
  aggregate: (server, up, senders, value) -> (server, value).
  """
  method = stage.algorithm

  def init_server(rng):
    server = method.init_server(rng)
    return _joined(server, field, begin(server, rng, None))

  def aggregate_both(server, up, senders):
    after, value = aggregate(_own(server), up, senders, server[-1])
    return _joined(after, field, value)

  def post_aggregate(server, data, rng):
    after = method.post_aggregate(_own(server), data, rng)
    return _joined(after, field, server[-1])

  def initialize(server, clients, data):
    previous = server[-1]
    server, clients = stage.initialize(_own(server), clients, data)
    return _joined(server, field, begin(server, None, previous)), clients

  def wrapped(function, of_joined=None):
    """Return the function of the joined server; what does nothing stays."""
    if function in NOTHING:
      return function
    of_own = lambda server, *args: function(_own(server), *args)
    return wraps(function)(of_joined or of_own)

  algorithm = method._replace(
    init_server=init_server,
    aggregate=aggregate_both,
    post_aggregate=wrapped(method.post_aggregate, post_aggregate),
    **{name: wrapped(getattr(method, name)) for name in SERVED},
  )
  return stage._replace(
    algorithm=algorithm,
    initialize=wrapped(stage.initialize, initialize),
    prepare_data=wrapped(stage.prepare_data),
    initial_broadcast=wrapped(stage.initial_broadcast),
  )


@cache
def _record(kind: type, field: str) -> type:
  """Return the record of a method's server with one more field."""
  joined = namedtuple(kind.__name__, (*kind._fields, field))
  joined.of_method = kind
  return joined


def _joined(server: Server, field: str, value: PyTree) -> Server:
  return _record(type(server), field)(*server, value)


def _own(server: Server) -> Server:
  return type(server).of_method(*server[:-1])

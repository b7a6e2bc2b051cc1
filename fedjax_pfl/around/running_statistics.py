"""SiloBN (Andreux et al. 2020): clients keep their running statistics.

  r_i <- 0.9 r_i + 0.1 statistic of the batch     in each step, fine-tuning too

The setting 'running_local', for any method: no message has the statistics of
BatchNorm. With 'running' they are averaged over clients, as all leaves.
"""

from functools import partial
from typing import NamedTuple

from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.algorithm import Client, Stage, unchanged
from fedjax_pfl.core.types import Array, Task


class Keeper(NamedTuple):
  """The state of a client that keeps its running statistics."""

  own: Client  # of the method
  statistics: dict[str, Array]  # by their paths in the model


def kept_by_clients(stages: tuple[Stage, ...], task: Task) -> tuple[Stage, ...]:
  """Return the method without running statistics in its messages.

  A client begins with mean 0 and variance 1. Those of the server stay so, and
  its model is no model to evaluate. Where a method keeps models of its own,
  these have their own statistics.
  """
  names = norm_stats.names_of(task.is_head)
  return tuple(_kept(stage, names) for stage in stages)


def _kept(stage: Stage, names: list[str]) -> Stage:
  method, begin, put = stage.algorithm, stage.initialize, norm_stats.put_into
  found_in = partial(norm_stats.found_in, names=names)

  def init_client(server, data, rng):
    return Keeper(method.init_client(server, data, rng), found_in(server))

  def download(server, client):
    return norm_stats.learned(method.download(server, client.own))

  def local_update(down, client, data, rng):
    down = put(down, client.statistics)
    own, up, metrics = method.local_update(down, client.own, data, rng)
    sent, old = found_in(up), client.statistics
    kept = {name: sent.get(name, old[name]) for name in old}
    return Keeper(own, kept), norm_stats.learned(up), metrics

  def whole(server, up, senders):
    """Return uploads in which the server's values stand for what is missing."""
    return put(up, trees.repeated(found_in(server), len(senders.ids)))

  def aggregate(server, up, senders):
    return method.aggregate(server, whole(server, up, senders), senders)

  def respond(server, clients, up, senders):
    up = whole(server, up, senders)
    own = method.respond(server, clients.own, up, senders)
    return clients._replace(own=own)

  def personalize(server, client, data, rng):
    server = put(server, client.statistics)
    return method.personalize(server, client.own, data, rng)

  def initialize(server, clients, data):
    server, own = begin(server, clients.own, data)
    return server, Keeper(put(own, clients.statistics), clients.statistics)

  algorithm = method._replace(
    init_client=init_client,
    download=download,
    local_update=local_update,
    aggregate=aggregate,
    personalize=personalize,
    respond=method.respond and respond,
    global_model=None,
  )
  stage = stage._replace(algorithm=algorithm)
  if stage.initialize is unchanged:
    return stage
  return stage._replace(initialize=initialize)

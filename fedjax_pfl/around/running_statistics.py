"""SiloBN (Andreux et al. 2020): clients keep their running statistics.

  r_i <- 0.9 r_i + 0.1 statistic of the batch     in each step, fine-tuning too

The setting 'running_local', for any method: no message has the statistics of
BatchNorm. With 'running' they are averaged over clients, as all leaves.
"""

from functools import partial
from typing import NamedTuple

from fedjax_pfl.around.lifted import Down, Part, Up, lifted, replaced
from fedjax_pfl.core import norm_stats, trees
from fedjax_pfl.core.algorithm import Client, Stage
from fedjax_pfl.core.types import Array, Task


class Keeper(NamedTuple):
  """The state of a client that keeps its running statistics."""

  own: Client  # of the method
  statistics: dict[str, Array]  # by their paths in the model


def kept_by_clients(stage: Stage, task: Task) -> Stage:
  """Return the stage without running statistics in its messages.

  A client begins with mean 0 and variance 1. Those of the server stay so: its
  model is not evaluated. Models that a method keeps have their own.
  """
  method, put = stage.algorithm, norm_stats.put_into
  names = norm_stats.names_of(task.is_head)
  found_in = partial(norm_stats.found_in, names=names)

  def begin(server, client, data, rng):
    return found_in(server)

  def again(server, clients, data, statistics):
    return put(clients, statistics), statistics

  def send(up, message, statistics, rng):
    new = found_in(up)
    kept = {name: new.get(name, old) for name, old in statistics.items()}
    return norm_stats.learned(up), kept, {}

  def receive(server, up, senders, kept):
    """Let the server's values stand for what is missing."""
    rows = trees.repeated(found_in(server), len(senders.counts))
    return put(up, rows), senders, kept

  def personalize(server, client, data, rng):
    server = put(server, client.statistics)
    return method.personalize(server, client.own, data, rng)

  client = Part(tuple, Keeper, begin, again)
  down = Down(lambda server, client, down: norm_stats.learned(down), put)
  stage = lifted(stage, client=client, down=down, up=Up(send, receive))
  return replaced(stage, personalize=personalize, global_model=None)

"""What crosses the network and what clients keep, counted in the pytrees."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import ClientData


class Traffic(NamedTuple):
  """Bytes of one client in one stage."""

  kept: int  # between rounds
  up: int  # in a round
  down: int  # in a round
  once: int  # as the stage begins


def count(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> Traffic:
  """Return the bytes of a stage, whose arguments may be shapes alone."""

  def messages(server, clients, data):
    data = stage.prepare_data(server, data)
    client = trees.gather(clients, 0)
    one = ClientData(data.x, data.y, data.index[0], data.count[0])
    down = stage.algorithm.download(server, client)
    _, up, _ = stage.algorithm.local_update(
      down, client, one, jax.random.key(0)
    )
    return client, up, down, stage.initial_broadcast(server)

  shapes = jax.eval_shape(messages, server, clients, data)
  kept, up, down, once = map(trees.num_bytes, shapes)
  return Traffic(kept, up, down - once, once)


def watch(stage: Stage, server: Server) -> tuple[Stage, Callable[[], Traffic]]:
  """Return the stage, and what tells its bytes as soon as a client trains.

  The same as `count`, noted while a round is traced: tracing a deep model only
  to count takes a second. It leaves no mark in the program.
  """
  method, seen = stage.algorithm, []
  once = trees.num_bytes(jax.eval_shape(stage.initial_broadcast, server))

  def local_update(down, client, data, rng):
    new_client, up, metrics = method.local_update(down, client, data, rng)
    kept, up_bytes, down_bytes = map(trees.num_bytes, (client, up, down))
    seen[:] = [Traffic(kept, up_bytes, down_bytes - once, once)]
    return new_client, up, metrics

  watched = method._replace(local_update=local_update)
  return stage._replace(algorithm=watched), lambda: seen[0]


def total(
  stages: Iterable[tuple[int, Traffic]], fraction: float = 1.0
) -> float:
  """Return the bytes to and from a client in (rounds, traffic) of all stages.

  sum_s f T_s (up_s + down_s) + once_s          f of the clients take part
  """
  return sum(
    fraction * rounds * (one.up + one.down) + one.once for rounds, one in stages
  )

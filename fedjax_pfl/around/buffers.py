"""FedBuff (Nguyen et al. 2022): nobody waits for the slowest client.

  M clients are at work at any time, each from the model w_v that it downloaded
  d_i  =  local_update(w_v) - w_v               v: the version then, tau = t - v
  w    <- w + eta_g 1/|B| sum_i d_i / sqrt(1 + tau_i)      as soon as B is full

A round is a buffer B of C uploads. When a client finishes depends on its steps
and its speed, not on the weights: the events are simulated beforehand, and the
compiled rounds are those of any method, with the buffer as their cohort. The
server keeps the versions from which a client at work, or in the buffer, has
begun, and hands a client the one that it downloaded.

The method, of one stage, uploads (a part of) a model, and aggregates w + d_i /
sqrt(1 + tau_i) in the place of w_i, with its own weights. eta_g is the
`server_learning_rate` of server_optimizer=sgd. If all clients finish together
and M = C, it is the method itself.

Differs from the paper: no client is twice in a buffer (the next starts in its
place); a client trains at the learning rate of the version it has; the clients
of a buffer that drop out leave it smaller.
"""

import heapq
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.lifted import Part, Up, lifted, replaced
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Params, PyTree
from fedjax_pfl.federated.communication import messages
from fedjax_pfl.federated.rounds import stage_shapes


class Schedule(NamedTuple):
  """Whose uploads fill the buffers."""

  cohorts: np.ndarray  # [T, C] clients, in increasing order
  staleness: np.ndarray  # [T, C] tau: versions since their downloads
  seconds: np.ndarray  # [T] simulated, when each buffer is full


def make_schedule(
  durations: np.ndarray, orders: Iterable[np.ndarray], at_work: int, size: int
) -> Schedule:
  """Return the schedule of buffers of `size`, with M clients at work.

  durations: [K] seconds that clients train. orders: for each version, the order
  [K] in which clients who are free begin to work on it. Who finish at the same
  time do so before others begin.
  """
  working, downloaded = [], {}  # a heap of (end, client); {client: version}
  now, rows = 0.0, []
  for version, order in enumerate(orders):
    buffer, waiting = [], iter(order)
    while len(buffer) < size:
      while len(working) < at_work:
        client = next((k for k in waiting if k not in downloaded), None)
        if client is None:
          break
        downloaded[client] = version
        heapq.heappush(working, (now + durations[client], client))
      now = working[0][0]
      while working and working[0][0] == now and len(buffer) < size:
        buffer.append(heapq.heappop(working)[1])
    buffer.sort()
    rows.append((buffer, [version - downloaded.pop(k) for k in buffer], now))
  return Schedule(*map(np.array, zip(*rows, strict=True)))


def places_of_versions(staleness: np.ndarray) -> np.ndarray:
  """Return where the server keeps version v = 0 .. T, of tau [T, C]: [T + 1].

  In the first free slot, until the last round that needs the version. A version
  that no round needs, such as the last, has the number after the last slot.
  """
  until = np.full(len(staleness) + 1, -1)
  for number, late in enumerate(staleness):
    until[number - late[late > 0]] = number
  places, ends = np.full(len(until), -1), []
  for version, last in enumerate(until):
    if last >= 0:
      free = [slot for slot, end in enumerate(ends) if end < version]
      slot = free[0] if free else len(ends)
      ends[slot : slot + 1] = [last]
      places[version] = slot
  return np.where(places < 0, max(1, len(ends)), places)


# ---- A method in buffers -----------------------------------------------------


class Buffered(NamedTuple):
  round: Array
  own: Server  # of the method
  kept: Params  # [L, ...], versions by `places_of_versions`


class Worker(NamedTuple):
  own: Client  # of the method
  id: Array  # []; K of a client who comes later


class Buffers(NamedTuple):
  """The buffers of a run."""

  schedule: Schedule
  num_clients: int


def buffered(stage: Stage, buffers: Buffers) -> Stage:
  """Return the stage whose rounds are the buffers of a schedule."""
  method, (schedule, num_clients) = stage.algorithm, buffers
  places = places_of_versions(schedule.staleness)
  length = int(places[-1])
  table = np.zeros((len(schedule.cohorts), num_clients), np.int32)
  np.put_along_axis(table, schedule.cohorts, schedule.staleness, 1)

  def staleness(clock: Array, ids: Array) -> Array:
    return jnp.asarray(table).at[clock, ids].get(mode='fill', fill_value=0)

  def begin(server, rng, previous):
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * length), server.params)

  def begin_client(server, client, data, rng):
    return jnp.asarray(num_clients)

  def again(server, clients, data, ids):
    return clients, jnp.arange(num_clients)

  def download(server, client):
    tau = staleness(server.round, client.id)
    slot = jnp.asarray(places)[server.round - tau]
    old, now = trees.gather(server.kept, slot), server.own
    params = trees.choose(tau == 0, now.params, old)
    then = now._replace(params=params, round=now.round - tau)
    return method.download(then, client.own)

  def send(up, down, id, rng):
    return _with_part(jnp.subtract, up, down.params), id, {}

  def receive(server, changes, senders, kept):
    scale = 1 / jnp.sqrt(1.0 + staleness(server.round, senders.ids))  # [C]

    def model(d, w):
      return w + scale.reshape(-1, *[1] * w.ndim).astype(d.dtype) * d

    return _with_part(model, changes, server.params), senders, kept

  split = lambda server: (server.own, server.kept)
  join = lambda inner, kept: Buffered(inner.round, inner, kept)
  server = Part(split, join, begin, begins_anew=True)
  client = Part(tuple, Worker, begin_client, again)
  stage = lifted(stage, server, client, up=Up(send, receive))

  def aggregate(server, up, senders, aggregated=stage.algorithm.aggregate):
    after = aggregated(server, up, senders)
    slot = jnp.asarray(places)[after.round]
    kept = trees.scatter(after.kept, slot, after.own.params)
    return after._replace(kept=kept)

  return replaced(stage, download=download, aggregate=aggregate)


def _with_part(function, part: PyTree, whole: PyTree) -> PyTree:
  """Return function(leaf, other) of a tree with holes and of a whole tree."""
  return jax.tree.map(
    lambda leaf, other: None if leaf is None else function(leaf, other),
    part,
    whole,
    is_leaf=lambda leaf: leaf is None,
  )


def only_stage(
  stages: tuple[Stage, ...], data: ClientData
) -> tuple[Stage, Server, Client]:
  """Return the stage and the shapes of its states.

  Refuses a method whose uploads are no changes of the server's model.
  """
  (stage, server, clients), *more = stage_shapes(stages, data)
  cause = ''
  if more or stage.full_participation:
    cause = 'a method of several stages, or one that needs all its clients'
  elif stage.algorithm.respond is not None:
    cause = 'a method whose server answers each of its clients'
  elif not _sends_a_model(stage, server, clients, data):
    cause = 'a method whose clients send something else, or nothing'
  elif 'round' in {name.split('/')[-1] for name in trees.leaf_names(clients)}:
    cause = 'a method whose clients keep the clock, that of a late one is older'
  if cause:
    raise bad_input(
      'buffer_size',
      got=f'a buffer of the uploads of {stage.name}',
      expected='0 with this method: only changes of one model of the server '
      'can be late',
      choices=['buffer_size=0', 'algorithm=fedavg', 'algorithm=fedper'],
      cause=cause,
    )
  return stage, server, clients


def _sends_a_model(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> bool:
  subtract = partial(jax.eval_shape, partial(_with_part, jnp.subtract))
  try:
    sent = messages(stage, server, clients, data)
    changes = subtract(sent.up, sent.down.params)
    moved = subtract(changes, server.params)
  except (AttributeError, TypeError, ValueError):
    return False
  before, after = (jax.tree.map(jnp.shape, tree) for tree in (changes, moved))
  return bool(jax.tree.leaves(changes)) and before == after

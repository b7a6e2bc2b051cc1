"""Clients whose rows live on the host: a round is fed those of its cohort.

  rows on the host -> those of the cohort -> train_cohort -> written back

What a device holds does not grow with the number of registered clients: it
has the images, the server, and two cohorts. The next one is fetched while a
round runs; of clients that are in both, what the round makes of them is taken
on the device. The numbers are those of rows on the device, bit for bit.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  Algorithm,
  Client,
  Server,
  Stage,
  unchanged,
)
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.chunking import auto_chunk
from fedjax_pfl.federated.cohort import Cohort, gather
from fedjax_pfl.federated.oom_backoff import until_it_fits
from fedjax_pfl.federated.rounds import Round, init_clients, train_cohort

BLOCK = 256  # clients that begin at once


class _Running(NamedTuple):
  """The clients of a round that may not be over, and what becomes of them."""

  ids: np.ndarray  # [C] in the order of training
  rows: Client  # [C, ...] on the device


def begin(stage: Stage, data: ClientData, key: Key) -> tuple[Server, Client]:
  """Return the states with which a method begins, the clients' on the host."""
  server_key, clients_key = jax.random.split(key)
  algorithm, num_clients = stage.algorithm, data.count.shape[0]
  server = algorithm.init_server(server_key)

  def init(ids):
    rows = data._replace(index=data.index[ids], count=data.count[ids])
    return init_clients(algorithm, server, rows, clients_key, ids)

  one = jax.eval_shape(lambda: init(np.arange(1)))
  clients = jax.tree.map(
    lambda leaf: np.empty((num_clients, *leaf.shape[1:]), leaf.dtype), one
  )
  if jax.tree.leaves(clients):
    for first in range(0, num_clients, BLOCK):
      ids = np.arange(first, min(first + BLOCK, num_clients))
      _write(clients, _Running(ids, init(ids)))
  return initialize_stage(stage, server, clients, data)


def initialize_stage(
  stage: Stage, server: Server, clients: Client, data: ClientData
) -> tuple[Server, Client]:
  """Return the states with which a stage begins, the clients' on the host.

  A stage that makes its states from those of all clients has them on the
  device for that moment.
  """
  if stage.initialize is unchanged:
    return server, clients
  server, clients = stage.initialize(server, clients, data)
  return server, jax.tree.map(np.array, clients)  # which can be written


def shapes_on_host(clients: Client) -> Client:
  """Return numpy arrays of these shapes that take no memory."""
  return jax.tree.map(
    lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape), clients
  )


def make_fed_rounds(
  algorithm: Algorithm,
  chunk: int | str = 'auto',
  log: Callable[[str], None] = lambda text: None,
  most: int | None = None,
) -> Round:
  """Return rounds of cohorts [T, C] for clients and rows on the host.

  They write what becomes of clients into the arrays that they are given: a
  copy of all clients would take longer than the round. `most` clients run side
  by side where the chunk is 'auto'.
  """

  def choose(server, cohort, place, data, key):
    rows = data._replace(index=cohort.index, count=cohort.count)
    chunk = auto_chunk(algorithm, server, cohort.clients, place, rows, key)
    return chunk if most is None else min(chunk, most)

  play = until_it_fits(partial(partial, _play, algorithm), chunk, choose, log)
  return partial(_rounds, play)


def check_stages(stages: tuple[Stage, ...], data: ClientData) -> None:
  """Refuse a method whose server looks at the rows of clients itself."""
  key = jax.eval_shape(jax.random.key, 0)

  def post_aggregate(algorithm, x, y, server, key):
    rows = without_rows(x, y, data.index.shape)
    return algorithm.post_aggregate(server, rows, key)

  for stage in stages:
    server = jax.eval_shape(stage.algorithm.init_server, key)
    try:
      jax.eval_shape(
        partial(post_aggregate, stage.algorithm), data.x, data.y, server, key
      )
    except (TypeError, AttributeError) as error:
      raise bad_input(
        'clients_placement',
        got='host',
        expected='device for this method: after every round its server looks '
        'at what all clients have',
        choices=['device'],
        cause=f'stage {stage.name}: {str(error).splitlines()[0][:80]}',
      ) from error


def without_rows(x: Array, y: Array, shape: tuple[int, int]) -> ClientData:
  """Return data that tell how many clients there are, and nothing of them."""
  return ClientData(
    x,
    y,
    jax.ShapeDtypeStruct(shape, jnp.int32),
    jax.ShapeDtypeStruct(shape[:1], jnp.int32),
  )


def _rounds(
  play: Callable,
  server: Server,
  clients: Client,
  cohorts: Array,
  data: ClientData,
  key: Key,
):
  metrics, running = [], None
  for ids in np.asarray(cohorts):
    order = np.lexsort((ids, data.count[ids]))  # as cohorts.by_size
    cohort = _fetch(clients, ids[order], data, running)
    server, rows, one = play(server, cohort, np.argsort(order), data, key)
    if running is not None:  # it is over when this round begins
      _write(clients, running)
    running = _Running(ids[order], rows)
    metrics.append(one)
  _write(clients, running)
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *metrics)
  return server, clients, stacked


def _play(algorithm, chunk, server, cohort, place, data, key):
  return compiled_round(
    *(algorithm, chunk, data.index.shape),
    *(server, cohort, place, data.x, data.y, key),
  )


@partial(jax.jit, static_argnums=(0, 1, 2))
def compiled_round(
  algorithm, chunk, shape, server, cohort, place, x, y, key
) -> tuple[Server, Client, dict[str, Array]]:
  """Return (server, rows in the order of training, metrics in that of ids).

  One program, whoever the cohort is; `shape` [K, N] is that of all rows.
  """
  data = without_rows(x, y, shape)
  server, rows, metrics = train_cohort(
    algorithm, chunk, server, cohort, data, key
  )
  return server, rows, trees.gather(metrics, place)


def _fetch(
  clients: Client, ids: np.ndarray, data: ClientData, running: _Running | None
) -> Cohort:
  """Return the cohort, on its way to the device."""
  cohort = jax.device_put(gather(clients, ids, data))
  if running is None or not jax.tree.leaves(cohort.clients):
    return cohort
  places = {client: place for place, client in enumerate(running.ids.tolist())}
  source = np.array([places.get(client, -1) for client in ids.tolist()])
  if np.all(source < 0):
    return cohort
  renewed = _renew(cohort.clients, running.rows, source)
  return cohort._replace(clients=renewed)


@jax.jit
def _renew(rows: Client, running: Client, source: Array) -> Client:
  """Return the rows, with running[source] where source is not negative."""

  def pick(row, other):
    is_new = (source >= 0).reshape((-1,) + (1,) * (row.ndim - 1))
    return jnp.where(is_new, other[source], row)

  return jax.tree.map(pick, rows, running)


def _write(clients: Client, running: _Running) -> None:
  """Put rows from the device into the arrays on the host; waits for them."""
  for leaf, rows in zip(
    jax.tree.leaves(clients), jax.tree.leaves(running.rows), strict=True
  ):
    leaf[running.ids] = np.asarray(rows)

"""Host offload: the states and rows of clients are numpy arrays on the host.

  rows on the host -> those of the cohort -> train_cohort -> written back

The memory of a device does not grow with the number of registered clients: it
holds the images, the server, and two cohorts. The next cohort is copied while a
round runs; the states of clients that are in both are taken from the round's
result on the device. The results are those of clients on the device, bit for
bit.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.algorithm import Algorithm, Client, Server, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.chunking import chunk_size
from fedjax_pfl.federated.cohort import Cohort, gather
from fedjax_pfl.federated.oom_backoff import with_oom_backoff
from fedjax_pfl.federated.rounds import Round, train_cohort


class _InFlight(NamedTuple):
  """The clients of a round that may still run, and their new states."""

  ids: np.ndarray  # [C] in the order of training
  rows: Client  # [C, ...] on the device


def make_host_rounds(
  algorithm: Algorithm,
  clients_per_chunk: int | str = 'auto',
  *,
  limit: int | None = None,
  log: Callable[[str], None] = lambda text: None,
) -> Round:
  """Return the function of rounds of cohorts [T, C] for clients on the host.

  It updates the given arrays of client states in place: to copy those of all
  clients would take longer than the round. `limit` is the largest 'auto'
  chunk, see chunking.py.
  """

  def choose(server, cohort, position, data, key):
    rows = data._replace(index=cohort.index, count=cohort.count)
    return chunk_size(
      *(clients_per_chunk, algorithm, server, cohort.clients),
      *(position, rows, key),
      limit=limit,
    )

  round_fn = with_oom_backoff(
    partial(partial, _run_round, algorithm), clients_per_chunk, choose, log
  )
  return partial(_run_rounds, round_fn)


def check_stages(stages: tuple[Stage, ...], data: ClientData) -> None:
  """Raise BadInput if a method's server reads the rows of all clients."""
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
        expected='device for this method: after every round its server reads '
        'the examples of all clients',
        choices=['device'],
        cause=f'stage {stage.name}: {str(error).splitlines()[0][:80]}',
      ) from error


def without_rows(x: Array, y: Array, shape: tuple[int, int]) -> ClientData:
  """Return data with the shapes of index and count in place of the arrays."""
  return ClientData(
    x,
    y,
    jax.ShapeDtypeStruct(shape, jnp.int32),
    jax.ShapeDtypeStruct(shape[:1], jnp.int32),
  )


def _run_rounds(
  round_fn: Callable,
  server: Server,
  clients: Client,
  cohorts: Array,
  data: ClientData,
  key: Key,
) -> tuple[Server, Client, dict[str, Array]]:
  metrics, in_flight = [], None
  for ids in np.asarray(cohorts):
    order = np.lexsort((ids, data.count[ids]))  # as cohort.by_size
    cohort = _fetch(clients, ids[order], data, in_flight)
    server, rows, own = round_fn(server, cohort, np.argsort(order), data, key)
    if in_flight is not None:  # that round has ended when this one begins
      write_rows(clients, *in_flight)
    in_flight = _InFlight(ids[order], rows)
    metrics.append(own)
  write_rows(clients, *in_flight)
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *metrics)
  return server, clients, stacked


def _run_round(algorithm, chunk, server, cohort, position, data, key):
  return compiled_round(
    *(algorithm, chunk, data.index.shape),
    *(server, cohort, position, data.x, data.y, key),
  )


@partial(jax.jit, static_argnums=(0, 1, 2))
def compiled_round(
  algorithm, chunk, shape, server, cohort, position, x, y, key
) -> tuple[Server, Client, dict[str, Array]]:
  """Return (server, rows in the order of training, metrics in that of ids).

  One program for every cohort. `shape` [K, N] is that of the indices of all
  clients; `position` [C] is where each id of the cohort is trained.
  """
  data = without_rows(x, y, shape)
  return train_cohort(algorithm, chunk, server, cohort, position, data, key)


def _fetch(
  clients: Client,
  ids: np.ndarray,
  data: ClientData,
  in_flight: _InFlight | None,
) -> Cohort:
  """Return the rows of a cohort; the copy to the device is asynchronous."""
  cohort = jax.device_put(gather(clients, ids, data))
  if in_flight is None or not jax.tree.leaves(cohort.clients):
    return cohort
  position = {own: place for place, own in enumerate(in_flight.ids.tolist())}
  source = np.array([position.get(own, -1) for own in ids.tolist()])
  if np.all(source < 0):
    return cohort
  latest = _replace_rows(cohort.clients, in_flight.rows, source)
  return cohort._replace(clients=latest)


@jax.jit
def _replace_rows(rows: Client, others: Client, source: Array) -> Client:
  """Return the rows, with others[source] where source is not negative."""

  def pick(row, other):
    is_new = (source >= 0).reshape((-1,) + (1,) * (row.ndim - 1))
    return jnp.where(is_new, other[source], row)

  return jax.tree.map(pick, rows, others)


def write_rows(clients: Client, ids: np.ndarray, rows: Client) -> None:
  """Wait for the rows of a round, and write them into the host's arrays."""
  for leaf, own in zip(
    jax.tree.leaves(clients), jax.tree.leaves(rows), strict=True
  ):
    leaf[ids] = np.asarray(own)

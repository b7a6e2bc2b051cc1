"""The federated round: one compiled function on stacked pytrees.

  gather the cohort's rows -> local_update of every client -> aggregate
  -> refine -> scatter the rows

It never asks which algorithm it runs. Results move neither with the order of
the cohort, nor the chunk, nor the padding, beyond rounding.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl import trees
from fedjax_pfl.algorithm import Algorithm, Client, Metrics, Server, Stage
from fedjax_pfl.errors import bad_input
from fedjax_pfl.types import Array, ClientData, Key, PyTree

Round = Callable[
  [Server, Client, Array, ClientData, Key], tuple[Server, Client, Metrics]
]
BACKENDS = ('vmap', 'loop')
MEMORY_SHARE = 0.8  # of what an accelerator says it has; the rest fragments


def init_states(
  algorithm: Algorithm, data: ClientData, key: Key
) -> tuple[Server, Client]:
  """Return the server and the stacked clients [K, ...] before round 0."""
  server_key, clients_key = jax.random.split(key)
  server = algorithm.init_server(server_key)

  def init_client(index, count, client_id):
    one = ClientData(data.x, data.y, index, count)
    return algorithm.init_client(
      server, one, jax.random.fold_in(clients_key, client_id)
    )

  ids = jnp.arange(data.count.shape[0])
  clients = jax.vmap(init_client)(data.index, data.count, ids)
  return server, clients


def begin(stage: Stage, data: ClientData, key: Key) -> tuple[Server, Client]:
  """Return the states with which the first stage of a method begins.

  >>> server, clients = begin(stages[0], data, jax.random.key(0))
  """
  return stage.enter(*init_states(stage.algorithm, data, key), data)


def stage_shapes(
  stages: Sequence[Stage], data: ClientData
) -> Iterator[tuple[Stage, Server, Client]]:
  """Yield every stage with its states as it begins, as shapes alone."""
  states = None
  for stage in stages:
    if states is None:
      key = jax.eval_shape(jax.random.key, 0)
      states = jax.eval_shape(partial(begin, stage), data, key)
    else:
      states = jax.eval_shape(stage.enter, *states, data)
    yield (stage, *states)


def cohort_size(num_clients: int, fraction: float) -> int:
  """Return C = max(floor(K f), 1)."""
  return max(int(num_clients * fraction), 1)


@partial(jax.jit, static_argnums=(1, 2))
def sample_cohort(key: Key, num_clients: int, size: int) -> Array:
  """Return `size` distinct clients, uniform without replacement, sorted: [C].

  >>> cohort = sample_cohort(jax.random.key(0), 100, 10)
  """
  return jnp.sort(jax.random.permutation(key, num_clients)[:size])


def sample_cohorts(
  key: Key, first: int, rounds: int, num_clients: int, size: int
) -> Array:
  """Return the cohorts of rounds first, first + 1, ...: [T, C]."""
  keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(
    first + jnp.arange(rounds)
  )
  return jax.vmap(lambda k: sample_cohort(k, num_clients, size))(keys)


def make_round(
  algorithm: Algorithm,
  *,
  chunk: int | str = 'auto',
  backend: str = 'vmap',
  name: str = 'round',
) -> Round:
  """Return (server, clients, cohort, data, key) -> (server, clients, metrics).

  `chunk` clients run side by side, chunk after chunk: 'auto' takes the
  largest number that fits memory and is not slower. The backend 'loop' runs
  client after client in Python, without compilation, and its exceptions name
  client, stage and round. Keys: fold_in(fold_in(key, round), client); the
  server's is that of client K, who does not exist.

  >>> round_fn = make_round(algorithm)
  >>> for _ in range(3):
  ...   server, clients, metrics = round_fn(server, clients, cohort, data, key)
  """
  if backend not in BACKENDS:
    raise bad_input(
      'backend',
      got=backend,
      expected='a way to run clients',
      choices=BACKENDS,
      cause='a typing error',
    )
  if backend == 'loop':
    return partial(_loop_round, algorithm, name)
  if chunk == 'auto':
    return _auto_round(algorithm)
  if not isinstance(chunk, int) or chunk < 1:
    raise bad_input(
      'chunk',
      got=chunk,
      expected='"auto" or a whole number of clients, 1 or more',
      cause='a typing error',
    )
  return jax.jit(partial(_compiled_round, algorithm, chunk))


def make_rounds(round_fn: Round) -> Round:
  """Return the same for cohorts [T, C]: one dispatch for T rounds.

  Metrics gain a leading T.
  """

  @jax.jit
  def rounds(server, clients, cohorts, data, key):
    def body(carry, cohort):
      server, clients, metrics = round_fn(*carry, cohort, data, key)
      return (server, clients), metrics

    (server, clients), metrics = lax.scan(body, (server, clients), cohorts)
    return server, clients, metrics

  return rounds


def map_clients(fn: Callable, rows: PyTree, chunk: int) -> PyTree:
  """Return fn of every row [C, ...], `chunk` rows side by side.

  A chunk of one has no client axis at all: its loops stop where the client's
  own data end, and its products are plain ones.
  """
  size = jax.tree.leaves(rows)[0].shape[0]
  if chunk >= size:
    return jax.vmap(fn)(rows)
  if chunk == 1:
    return lax.map(fn, rows)
  return lax.map(fn, rows, batch_size=chunk)


class Memory(NamedTuple):
  """What an accelerator has, and what clients side by side take, in bytes."""

  free: int
  client: int  # that the program of one client needs


def auto_chunk(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
) -> int:
  """Return how many clients of the cohort should run side by side.

  On a CPU one: a product fills all cores, and side by side the same work
  takes longer (BUILD.md, "Speed"). On an accelerator as many as fit. Only the
  shapes of the arguments matter.
  """
  if jax.default_backend() == 'cpu':
    return 1
  memory = memory_of(algorithm, server, clients, cohort, data, key)
  if memory is None:
    return cohort.shape[0]
  fitting = MEMORY_SHARE * memory.free // memory.client
  return int(np.clip(fitting, 1, cohort.shape[0]))


def memory_of(
  algorithm: Algorithm,
  server: Server,
  clients: Client,
  cohort: Array,
  data: ClientData,
  key: Key,
) -> Memory | None:
  """Return the free memory, and what the compiler says that a client needs.

  None where the device does not say what it has, as a CPU. Only the shapes of
  the arguments matter.
  """
  stats = jax.devices()[0].memory_stats() or {}
  if jax.default_backend() == 'cpu' or 'bytes_limit' not in stats:
    return None
  shapes = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
    (server, clients, cohort, data, key),
  )
  compiled = _first_client.lower(algorithm, *shapes).compile()
  memory = compiled.memory_analysis()
  need = memory.temp_size_in_bytes + memory.output_size_in_bytes
  free = stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return Memory(free, max(need, 1))


@partial(jax.jit, static_argnums=0)
def _first_client(algorithm, server, clients, cohort, data, key):
  row = trees.take(_rows(clients, cohort, data), 0)
  return _client_update(algorithm, server, data, key)(row)


def _compiled_round(algorithm, chunk, server, clients, cohort, data, key):
  chex.assert_rank(cohort, 1)
  # By size, so that a chunk holds clients of like size and its steps are not
  # wasted; then by id, so that sums do not move with the cohort's order.
  order = jnp.lexsort((cohort, data.count[cohort]))
  cohort = cohort[order]
  update = _client_update(algorithm, server, data, key)
  rows = _rows(clients, cohort, data)
  new_rows, uploads, metrics = map_clients(update, rows, chunk)
  chex.assert_tree_shape_prefix(uploads, cohort.shape)  # [C, ...]
  server_key = _server_key(server, data, key)
  server = algorithm.aggregate(server, uploads, data.count[cohort])
  server = algorithm.refine(server, data, server_key)
  clients = trees.put(clients, cohort, new_rows)
  return server, clients, trees.take(metrics, jnp.argsort(order))


def _loop_round(algorithm, name, server, clients, cohort, data, key):
  order = np.lexsort((cohort, np.asarray(data.count)[np.asarray(cohort)]))
  cohort = jnp.asarray(cohort)[order]
  update = _client_update(algorithm, server, data, key)
  results = []
  for position, client_id in enumerate(cohort.tolist()):
    row = trees.take(_rows(clients, cohort, data), position)
    with _named(f'client {client_id}', name, server):
      results.append(update(row))
  new_rows, uploads, metrics = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *results
  )
  server_key = _server_key(server, data, key)
  after = algorithm.aggregate(server, uploads, data.count[cohort])
  with _named('server', name, server):
    server = algorithm.refine(after, data, server_key)
  clients = trees.put(clients, cohort, new_rows)
  return server, clients, trees.take(metrics, jnp.argsort(order))


@contextlib.contextmanager
def _named(who, stage, server):
  """Run without compilation; say in an exception who failed, and when."""
  try:
    with jax.disable_jit():
      yield
  except Exception as error:
    raise RuntimeError(
      f'{who}, stage "{stage}", round {int(server.round)}: '
      f'{type(error).__name__}: {error}'
    ) from error


def _server_key(server, data, key):
  """Return the key that follows those of all clients of this round."""
  num_clients = data.count.shape[0]
  return jax.random.fold_in(jax.random.fold_in(key, server.round), num_clients)


def _client_update(algorithm, server, data, key):
  """Return row -> (client, upload, metrics) for the rows of `_rows`."""
  round_key = jax.random.fold_in(key, server.round)

  def update(row):
    client, index, count, client_id = row
    one = ClientData(data.x, data.y, index, count)
    return algorithm.local_update(
      algorithm.download(server, client),
      client,
      one,
      jax.random.fold_in(round_key, client_id),
    )

  return update


def _rows(clients, cohort, data):
  rows = trees.take(clients, cohort)
  return rows, data.index[cohort], data.count[cohort], cohort


def _auto_round(algorithm):
  """Return the round whose chunk is chosen at the first call of a shape."""
  chosen: dict[int, Round] = {}

  def round_fn(server, clients, cohort, data, key):
    size = cohort.shape[0]
    if size not in chosen:
      chunk = auto_chunk(algorithm, server, clients, cohort, data, key)
      chosen[size] = make_round(algorithm, chunk=chunk)
    return chosen[size](server, clients, cohort, data, key)

  return round_fn

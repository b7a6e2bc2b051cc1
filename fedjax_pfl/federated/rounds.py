"""The federated round: one compiled function on stacked pytrees.

  gather the cohort's rows -> local_update of every client -> aggregate
  -> post_aggregate -> scatter the rows

It never asks which algorithm it runs. Results move neither with the order of
the cohort, nor the chunk, nor the padding, beyond rounding.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from fedjax_pfl.client.step_check import Diverged
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.chunking import auto_chunk
from fedjax_pfl.federated.cohort import Cohort, by_size, client_update, gather
from fedjax_pfl.federated.oom_backoff import until_it_fits
from fedjax_pfl.federated.sharding import map_clients

Round = Callable[
  [Server, Client, Array, ClientData, Key], tuple[Server, Client, Metrics]
]
BACKENDS = ('vmap', 'loop')


def init_states(
  algorithm: Algorithm, data: ClientData, key: Key
) -> tuple[Server, Client]:
  """Return the server and the stacked clients [K, ...] before round 0."""
  server_key, clients_key = jax.random.split(key)
  server = algorithm.init_server(server_key)
  ids = jnp.arange(data.count.shape[0])
  return server, init_clients(algorithm, server, data, clients_key, ids)


def init_clients(
  algorithm: Algorithm, server: Server, data: ClientData, key: Key, ids: Array
) -> Client:
  """Return the stacked states [C, ...] of these clients before round 0.

  Of the rows of indices, `data` has those of these clients alone.
  """

  def init_client(index, count, client_id):
    one = ClientData(data.x, data.y, index, count)
    return algorithm.init_client(
      server, one, jax.random.fold_in(key, client_id)
    )

  return jax.vmap(init_client)(data.index, data.count, ids)


def begin(stage: Stage, data: ClientData, key: Key) -> tuple[Server, Client]:
  """Return the states with which the first stage of a method begins.

  >>> server, clients = begin(stages[0], data, jax.random.key(0))
  """
  return stage.initialize(*init_states(stage.algorithm, data, key), data)


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
      states = jax.eval_shape(stage.initialize, *states, data)
    yield (stage, *states)


def make_round(
  algorithm: Algorithm,
  *,
  clients_per_chunk: int | str = 'auto',
  mesh: Mesh | None = None,
  backend: str = 'vmap',
  name: str = 'round',
) -> Round:
  """Return (server, clients, cohort, data, key) -> (server, clients, metrics).

  `clients_per_chunk` clients run side by side, chunk after chunk: 'auto' takes
  the largest number that fits memory and is not slower. The devices of a `mesh`
  each have a share of the clients; see mesh.py. The backend 'loop' runs client
  after client in Python, without compilation, and its exceptions name client,
  stage and round. Keys: fold_in(fold_in(key, round), client); the server's is
  that of client K, who does not exist.

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
  if clients_per_chunk == 'auto':
    return _auto_round(algorithm, mesh)
  if not isinstance(clients_per_chunk, int) or clients_per_chunk < 1:
    raise bad_input(
      'clients_per_chunk',
      got=clients_per_chunk,
      expected='"auto" or a whole number of clients, 1 or more',
      cause='a typing error',
    )
  return jax.jit(partial(_compiled_round, algorithm, clients_per_chunk, mesh))


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


def train_cohort(
  algorithm: Algorithm,
  chunk: int,
  server: Server,
  cohort: Cohort,
  data: ClientData,
  key: Key,
  mesh: Mesh | None = None,
) -> tuple[Server, Client, Metrics]:
  """Return (server, rows of the cohort's clients, metrics) after a round.

  The cohort comes in the order of `by_size`. Of `data`, the rows of clients
  are not looked at.
  """

  def update(shared, one):
    return client_update(algorithm, *shared)(one)

  rows, uploads, metrics = map_clients(
    update, (server, data, key), cohort, chunk, mesh
  )
  for leaf in jax.tree.leaves(uploads):
    assert leaf.shape[:1] == cohort.ids.shape, leaf.shape  # [C, ...]
  return _learn(algorithm, server, uploads, cohort, data, key), rows, metrics


def _learn(algorithm, server, uploads, cohort, data, key) -> Server:
  server_key = _server_key(server, data, key)
  server = algorithm.aggregate(server, uploads, cohort.count)
  return algorithm.post_aggregate(server, data, server_key)


def _compiled_round(algorithm, chunk, mesh, server, clients, ids, data, key):
  assert ids.ndim == 1, ids.shape  # [C]
  order = by_size(ids, data.count)
  cohort = gather(clients, ids[order], data)
  server, rows, metrics = train_cohort(
    algorithm, chunk, server, cohort, data, key, mesh
  )
  clients = trees.scatter(clients, cohort.ids, rows)
  return server, clients, trees.gather(metrics, jnp.argsort(order))


def _loop_round(algorithm, name, server, clients, ids, data, key):
  order = by_size(jnp.asarray(ids), data.count)
  cohort = gather(clients, jnp.asarray(ids)[order], data)
  update = client_update(algorithm, server, data, key)
  results = []
  for position, client_id in enumerate(cohort.ids.tolist()):
    with _named(f'client {client_id}', name, server):
      results.append(update(trees.gather(cohort, position)))
  rows, uploads, metrics = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *results
  )
  with _named('server', name, server):
    server = _learn(algorithm, server, uploads, cohort, data, key)
  clients = trees.scatter(clients, cohort.ids, rows)
  return server, clients, trees.gather(metrics, jnp.argsort(order))


@contextlib.contextmanager
def _named(who, stage, server):
  """Run without compilation; say in an exception who failed, and when."""
  try:
    with jax.disable_jit():
      yield
  except Diverged as error:
    raise bad_input(
      'training',
      got=f'NaN or infinity: {who}, round {int(server.round) + 1} of {stage}, '
      f'{error}',
      expected='finite numbers',
      choices=['a smaller learning_rate', 'another model'],
      cause='a learning rate that is too high for this model',
    ) from error
  except Exception as error:
    raise RuntimeError(
      f'{who}, stage "{stage}", round {int(server.round)}: '
      f'{type(error).__name__}: {error}'
    ) from error


def _server_key(server, data, key):
  """Return the key that follows those of all clients of this round."""
  num_clients = data.count.shape[0]
  return jax.random.fold_in(jax.random.fold_in(key, server.round), num_clients)


def _auto_round(algorithm, mesh):
  """Return the round whose chunk is chosen at the first call of a shape."""
  chosen: dict[int, Round] = {}

  def round_fn(server, clients, cohort, data, key):
    size = cohort.shape[0]
    if size not in chosen:
      chosen[size] = until_it_fits(
        lambda chunk: make_round(algorithm, clients_per_chunk=chunk, mesh=mesh),
        'auto',
        partial(auto_chunk, algorithm),
      )
    return chosen[size](server, clients, cohort, data, key)

  return round_fn

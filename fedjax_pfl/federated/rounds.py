"""The federated round: one compiled function on stacked pytrees.

  gather the cohort's rows -> local_update of every client -> aggregate
  -> respond to the cohort -> scatter the rows

It does not depend on the algorithm. Up to rounding, results depend neither on
the order of the cohort, nor on the chunk, nor on the padding.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from fedjax_pfl.client.local_training import NotFinite
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  SERVER_FINITE,
  Algorithm,
  Client,
  Metrics,
  Server,
  Stage,
)
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.client_map import run_round
from fedjax_pfl.federated.cohort import (
  Cohort,
  all_send,
  by_size,
  client_update,
  gather,
  server_update,
)
from fedjax_pfl.federated.sharding import PerSize, replicate

Round = Callable[
  [Server, Client, Array, ClientData, Key], tuple[Server, Client, Metrics]
]
BACKENDS = ('vmap', 'loop')
CLIENTS = 1  # their place among the arguments of a round


def init_states(
  algorithm: Algorithm, data: ClientData, key: Key
) -> tuple[Server, Client]:
  """Return the states of server and clients before round 0.

  `begin` adds what the stage makes of them; most stages change nothing.

  Args:
    algorithm: the functions of the method.
    data: the training examples of all K clients.
    key: a JAX key.

  Returns:
    (server, clients): two pytrees of the method's own; every leaf of the
    second is stacked over the clients, [K, ...].

  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  >>> ditto, key = pfl.algorithm('ditto'), jax.random.key(0)
  >>> (stage,) = ditto.build(task, ditto.HParams())
  >>> server, clients = pfl.init_states(stage.algorithm, data, key)
  >>> server.round.item(), {len(leaf) for leaf in jax.tree.leaves(clients)}
  (0, {3})
  """
  server_key, clients_key = jax.random.split(key)
  server = algorithm.init_server(server_key)
  return server, init_clients(algorithm, server, data, clients_key)


def init_clients(
  algorithm: Algorithm,
  server: Server,
  data: ClientData,
  key: Key,
  ids: Array | None = None,
) -> Client:
  """Return the stacked states [C, ...] of these clients before round 0."""
  index, count = data.index, data.count
  if ids is None:
    ids = jnp.arange(count.shape[0])
  else:
    index, count = index[ids], count[ids]

  def init_client(index, count, client_id):
    own = ClientData(data.x, data.y, index, count)
    return algorithm.init_client(
      server, own, jax.random.fold_in(key, client_id)
    )

  return jax.vmap(init_client)(index, count, ids)


def begin(stage: Stage, data: ClientData, key: Key) -> tuple[Server, Client]:
  """Return the states with which the first stage of a method begins.

  Args:
    stage: the first stage that the method's `build` returns.
    data: the training examples of all K clients.
    key: a JAX key.

  Returns:
    (server, clients) for the first round; the leaves of clients are [K, ...].

  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  >>> fedavg = pfl.algorithm('fedavg')
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> server, clients = pfl.begin(stage, data, jax.random.key(0))
  >>> server.params['head']['kernel'].shape
  (64, 2)
  """
  return stage.initialize(*init_states(stage.algorithm, data, key), data)


def stage_shapes(
  stages: Sequence[Stage], data: ClientData
) -> Iterator[tuple[Stage, Server, Client]]:
  """Yield every stage with the shapes of the states with which it begins."""
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
  mesh: Mesh | str | None = 'auto',
  backend: str = 'vmap',
  name: str = 'round',
) -> Round:
  """Return the function of one round.

  Keys: fold_in(fold_in(key, server.round), client id); the server's is that of
  id K.

  Args:
    algorithm: the functions of the method.
    clients_per_chunk: how many clients run at the same time, chunk after
      chunk. 'auto': as many as fit into memory, one on a CPU or a TPU.
    mesh: the devices over which clients and their states are divided (see
      placement.py); None for one device. 'auto': on a CPU a device a core
      where that is faster (sharding.py), else all devices.
    backend: 'vmap', or 'loop': client after client in Python, not compiled;
      its exceptions name client, stage and round.
    name: the stage, for these exceptions.

  Returns:
    (server, clients [K, ...], cohort [C], data, key) -> (server, clients,
    metrics {name: [C]}), compiled at the first call. The ids of a cohort are
    distinct. One metric is [], 'server_finite': whether the server is.

  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  >>> fedavg, key = pfl.algorithm('fedavg'), jax.random.key(0)
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> server, clients = pfl.begin(stage, data, key)
  >>> round_fn, cohort = pfl.make_round(stage.algorithm), jnp.array([0, 2])
  >>> server, _, metrics = round_fn(server, clients, cohort, data, key)
  >>> server.round.item(), metrics['loss'].shape
  (1, (2,))
  """
  one_of(BACKENDS, 'a way to run clients').check('backend', backend)
  if backend == 'loop':
    return partial(_loop_round, algorithm, name)
  chunking.CHUNKS.check('clients_per_chunk', clients_per_chunk)
  return PerSize(partial(_compiled_round, algorithm, clients_per_chunk), mesh)


def _compiled_round(
  algorithm: Algorithm, clients_per_chunk: int | str, mesh: Mesh | None
) -> Round:
  def make(chunk):
    map_fn = partial(chunking.map_chunks, chunk=chunk)
    round_fn = partial(_round, algorithm, map_fn)
    if mesh is not None:
      round_fn = partial(run_round, algorithm, chunk, mesh)
    return replicate(jax.jit(round_fn), mesh, CLIENTS)

  choose = partial(chunking.chunk_size, clients_per_chunk, algorithm)
  return chunking.with_oom_backoff(make, clients_per_chunk, choose)


def make_rounds(round_fn: Round) -> Round:
  """Return the function of several rounds: one dispatch, one program.

  Args:
    round_fn: what `make_round` returns, with backend 'vmap'.

  Returns:
    The same function for cohorts [T, C]; its metrics are [T, C].

  >>> data = pfl.from_arrays([np.ones((2, 8, 8, 1))] * 3, [np.arange(2)] * 3)
  >>> task = pfl.make_task('convnet3', image_shape=(8, 8, 1), num_classes=2)
  >>> fedavg, key = pfl.algorithm('fedavg'), jax.random.key(0)
  >>> (stage,) = fedavg.build(task, fedavg.HParams())
  >>> rounds_fn = pfl.make_rounds(pfl.make_round(stage.algorithm))
  >>> cohorts = pfl.sample_cohorts(key, 0, 5, num_clients=3, size=2)
  >>> server, clients = pfl.begin(stage, data, key)
  >>> server, _, metrics = rounds_fn(server, clients, cohorts, data, key)
  >>> server.round.item(), metrics['loss'].shape
  (5, (5, 2))
  """

  @jax.jit
  def rounds(server, clients, cohorts, data, key):
    def body(carry, cohort):
      server, clients, metrics = round_fn(*carry, cohort, data, key)
      return (server, clients), metrics

    (server, clients), metrics = lax.scan(body, (server, clients), cohorts)
    return server, clients, metrics

  if getattr(round_fn, 'mesh', None) is None:
    return rounds
  return PerSize(lambda mesh: replicate(rounds, mesh, CLIENTS), round_fn.mesh)


def train_cohort(
  algorithm: Algorithm,
  map_fn: Callable,
  server: Server,
  cohort: Cohort,
  position: Array,
  data: ClientData,
  key: Key,
) -> tuple[Server, Client, Metrics]:
  """Return (server, rows of the cohort's clients, metrics) after a round.

  map_fn: (update, cohort) -> what the update returns of every client.

  The cohort is in the order of `by_size`; metrics are in that of `position`
  [C], the place where each client is trained. The rows of indices in `data` are
  not read: `cohort` has them.
  """
  update = client_update(algorithm, server, data, key)
  rows, uploads, metrics = map_fn(update, cohort)
  for leaf in jax.tree.leaves(uploads):
    assert leaf.shape[:1] == cohort.ids.shape, leaf.shape  # [C, ...]
  senders = all_send(cohort.ids, cohort.count, data)
  server = server_update(algorithm, server, uploads, senders, key)
  if algorithm.respond is not None:
    rows = algorithm.respond(server, rows, uploads, senders)
  metrics = trees.gather(metrics, position)
  return server, rows, {**metrics, SERVER_FINITE: trees.all_finite(server)}


def _round(algorithm, map_fn, server, clients, ids, data, key):
  assert ids.ndim == 1, ids.shape  # [C]
  order = by_size(ids, data.count)
  cohort = gather(clients, ids[order], data)
  server, rows, metrics = train_cohort(
    algorithm, map_fn, server, cohort, jnp.argsort(order), data, key
  )
  return server, trees.scatter(clients, cohort.ids, rows), metrics


def _loop_round(algorithm, name, server, clients, ids, data, key):
  def loop(update, cohort):
    results = []
    for position, client_id in enumerate(cohort.ids.tolist()):
      with _named(f'client {client_id}', name, server):
        results.append(update(trees.gather(cohort, position)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

  def aggregate(*args):
    with _named('server', name, server):
      return algorithm.aggregate(*args)

  named = algorithm._replace(aggregate=aggregate)
  return _round(named, loop, server, clients, jnp.asarray(ids), data, key)


@contextlib.contextmanager
def _named(who, stage, server):
  """Disable compilation; add client, stage and round to an exception."""
  try:
    with jax.disable_jit():
      yield
  except NotFinite as error:
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
      f'{who}, stage "{stage}", round {int(server.round) + 1}: '
      f'{type(error).__name__}: {error}'
    ) from error

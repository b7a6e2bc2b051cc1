"""The federated round: one compiled function on stacked pytrees.

  gather the cohort's rows -> local_update of every client -> aggregate
  -> respond to the cohort -> write the rows

`compile_rounds` is the one way to it: on one device (cohort.py), on a
mesh (client_map.py), of clients on the host (host_offload.py), or in Python.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from fedjax_pfl.client.local_training import NotFinite
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Client, Metrics, Server, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.client_map import run_on_mesh, write_on_mesh
from fedjax_pfl.federated.cohort import Change, Watch, run_round, write
from fedjax_pfl.federated.host_offload import (
  compile_round,
  host_rounds,
  server_data_fn,
)
from fedjax_pfl.federated.model_axis import divide
from fedjax_pfl.federated.placement import (
  ONE_DEVICE,
  OneDevice,
  init_clients,
  on_mesh_or_one,
)
from fedjax_pfl.federated.sharding import PerSize

Round = Callable[
  [Server, Client, Array, ClientData, Key], tuple[Server, Client, Metrics]
]
BACKENDS = ('vmap', 'loop')
CLIENTS = 2  # their place among the arguments of compiled rounds


def init_states(
  algorithm: Algorithm, data: ClientData, key: Key
) -> tuple[Server, Client]:
  """Return the states of server and clients before round 0; see `begin`.

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
  return ONE_DEVICE.begin(stage, data, key)


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
    return partial(_loop_rounds, algorithm, None, name, {})
  chunking.CHUNKS.check('clients_per_chunk', clients_per_chunk)

  def make(mesh):
    rounds = compile_rounds(
      lambda numbers: algorithm, clients_per_chunk, on_mesh_or_one(mesh)
    )
    return partial(rounds, {})

  return PerSize(make, mesh)


def make_rounds(round_fn: Round) -> Round:
  """Return the function of several rounds: one call, whatever clients keep.

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
  return round_fn  # takes cohorts of both shapes


def compile_rounds(
  algorithm_of: Callable[[Mapping[str, Any]], Algorithm],
  clients_per_chunk: int | str,
  placement: OneDevice = ONE_DEVICE,
  loop: str = '',
  *,
  watch: Watch | None = None,
  limit: int | None = None,
  log: Callable[[str], None] = lambda text: None,
  in_place: bool = False,
) -> Callable:
  """Return (numbers, server, clients, ids, data, key) -> what a round returns.

  `ids` [C] are one round, [T, C] several rounds. They are one program, unless
  clients keep a state: then each round is a program, which returns the states
  of its cohort, and a second one, which cannot run out of memory, writes them.
  So no round copies the states of all. With clients on the host `ids` are
  always [T, C].

  Args:
    algorithm_of: numbers -> the algorithm; called while rounds are traced, and
      with {} before, for the algorithm of settings as they are.
    clients_per_chunk: a setting of chunking.py; what does not fit into memory
      is halved if it is 'auto'.
    placement: where clients lie, and who works.
    loop: the name of the stage, if clients run in Python, not compiled.
    watch: what else is computed of every client, see cohort.py.
    limit: the largest 'auto' chunk.
    log: called with a sentence where a chunk is halved.
    in_place: whether states are written into the memory of those before, which
      are then gone.
  """
  algorithm = algorithm_of({})
  if loop:
    return partial(_loop_rounds, algorithm, watch, loop)
  chunk_size = partial(
    chunking.chunk_size, clients_per_chunk, algorithm, limit=limit
  )

  def make(chunk):
    if placement.on_host:
      return compile_round(algorithm, watch, chunk)
    rounds = rounds_fn(algorithm_of, chunk, placement.mesh, watch)
    return placement.compile(jax.jit(rounds), divided=CLIENTS)

  def choose(*args):
    if placement.on_host:  # the device has the cohort's alone
      _, server, cohort, ids, x, y, key, _ = args
      data = ClientData(x, y, cohort.index, cohort.count, cohort.work)
      return chunk_size(server, cohort.clients, ids, data, key)
    _, server, clients, ids, data, key = args
    ids = ids[0] if ids.ndim == 2 else ids
    return chunk_size(server, clients, ids, data, key)

  round_fn = chunking.with_oom_backoff(make, clients_per_chunk, choose, log)
  if placement.on_host:
    return partial(host_rounds, round_fn, server_data_fn(algorithm))
  return partial(_play, round_fn, placement.writer(in_place=in_place))


def _play(round_fn, write_fn, numbers, server, clients, ids, data, key):
  """Return what rounds return; those of clients with a state one by one."""

  def step(server, clients, ids):
    server, change, metrics = round_fn(numbers, server, clients, ids, data, key)
    if change.ids is None:
      return server, change.rows, metrics
    return server, write_fn(clients, change), metrics

  has_states, history = jax.tree.leaves(clients), []
  is_part = trees.is_traced((server, clients, ids, data, key))
  if ids.ndim == 1 or is_part or not has_states:
    return step(server, clients, ids)
  for cohort in np.asarray(ids):
    server, clients, metrics = step(server, clients, cohort)
    history.append(metrics)
  return server, clients, trees.stack(history)


def rounds_fn(algorithm_of, chunk, mesh, watch):
  """Return `compile_rounds` before compilation, on one device or a mesh.

  Its second result is a `Change`: of one round, of all states after several.
  """

  def rounds(numbers, server, clients, ids, data, key):
    algorithm = algorithm_of(numbers)
    if mesh is None:
      map_fn = partial(chunking.map_chunks, chunk=chunk)
      step = partial(run_round, algorithm, watch, map_fn, data, key)
      write_fn = write
    else:
      step = partial(run_on_mesh, algorithm, watch, chunk, mesh, data, key)
      write_fn = partial(write_on_mesh, mesh)

    def whole(states, ids):
      server, change, metrics = step(states, ids)
      return (server, write_fn(states[1], change)), metrics

    if ids.ndim == 1 and jax.tree.leaves(clients):
      return step((server, clients), ids)
    run = whole if ids.ndim == 1 else partial(lax.scan, whole)
    (server, clients), metrics = run((server, clients), ids)
    return divide(server), Change(None, clients), metrics

  return rounds


def _loop_rounds(
  algorithm, watch, name, numbers, server, clients, ids, data, key
):
  """Return rounds client after client in Python, without compilation."""

  def loop(update, cohort):
    results = []
    for position, client_id in enumerate(cohort.ids.tolist()):
      with _named(f'client {client_id}', name, server):
        results.append(update(trees.gather(cohort, position)))
    return trees.stack(results)

  def aggregate(*args):
    with _named('server', name, server):
      return algorithm.aggregate(*args)

  named = algorithm._replace(aggregate=aggregate)
  states, ids, metrics = (server, clients), jnp.asarray(ids), []
  for cohort in jnp.atleast_2d(ids):
    server, change, of_round = run_round(
      named, watch, loop, data, key, states, cohort
    )
    states = server, write(states[1], change)
    metrics.append(of_round)
  return *states, trees.stack(metrics) if ids.ndim == 2 else of_round


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

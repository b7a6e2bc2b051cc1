"""Where the states of clients lie, and with them the work of a round.

  OneDevice   [K, ...] on the device that does all the work
  OnMesh      [K', ...] divided over D devices, K' = K rounded up to a multiple
              of D; device d owns the rows from d K'/D on, and trains a share of
              every cohort (client_map.py)
  OnModelAxis [K, ...] on groups of devices, over each of which the model is
              divided (divided_models.py)
  OnHost      [K, ...] numpy arrays; a device gets those of a cohort
              (host_offload.py)
  OnDisk      [K, ...] files in the folder of the run (state_files.py); the rest
              is as on the host

A device of a mesh holds the states of all clients only while a stage's
`initialize` makes new ones. Rows from K on are never read.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  Algorithm,
  Client,
  Server,
  Stage,
  unchanged,
)
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.data.client_data import client_of, on_device, with_own_pool
from fedjax_pfl.federated.client_map import (
  fetch,
  pad_rows,
  to_all,
  write_on_mesh,
)
from fedjax_pfl.federated.cohort import write
from fedjax_pfl.federated.host_offload import write_rows
from fedjax_pfl.federated.sharding import (
  AXIS,
  describe,
  make_mesh,
  num_places,
  on_mesh,
  replicate,
)
from fedjax_pfl.federated.state_files import StateFiles

INIT_BLOCK = 256  # clients whose states are made in one call, for the host
READ_BLOCK = 10  # those whose states depend on examples, which are moved


def init_clients(
  algorithm: Algorithm,
  server: Server,
  data: ClientData,
  key: Key,
  ids: Array | None = None,
  out_axes: int | None = 0,
) -> Client:
  """Return the stacked states [C, ...] of clients before round 0.

  ids: of those of the data; None: they are all. out_axes=None: the one state of
  all; a ValueError if clients have others.
  """
  if ids is None:
    ids = jnp.arange(data.count.shape[0])

  def init_client(index, count, client_id):
    examples = ClientData(data.x, data.y, index, count)
    client_key = jax.random.fold_in(key, client_id)
    return algorithm.init_client(server, examples, client_key)

  init = jax.vmap(init_client, out_axes=out_axes)
  return init(data.index, data.count, ids)


def is_read(fn: Callable[[ClientData], Any], data: ClientData) -> list[bool]:
  """Return whether fn reads inputs, and labels; True if the device has them."""
  if not isinstance(data.x, np.ndarray):
    return [True, True]
  row = on_device(data._replace(x=data.x[:1], y=data.y[:1]))
  of_pools = lambda x, y: fn(data._replace(x=x, y=y))
  return trees.reads(of_pools, row.x, row.y)


def init_fn(
  algorithm: Algorithm, server: Server, data: ClientData, key: Key
) -> tuple[Callable[..., Client], int]:
  """Return the function from ids to first states, and how many ids it takes."""

  def init(ids, data=data, **how):
    rows = with_own_pool(client_of(data, ids))
    return init_clients(algorithm, server, rows, key, ids, **how)

  if not any(is_read(partial(init, np.arange(1)), data)):
    row = on_device(data._replace(x=data.x[:1], y=data.y[:1]))
    return partial(init, data=row), INIT_BLOCK
  return init, READ_BLOCK if isinstance(data.x, np.ndarray) else INIT_BLOCK


def shapes_of_all(init: Callable, num_clients: int) -> Client:
  """Return the shapes of the states of all clients."""
  of_one = jax.eval_shape(partial(init, np.arange(1)))
  of_all = lambda leaf: leaf.update(shape=(num_clients, *leaf.shape[1:]))
  return jax.tree.map(of_all, of_one)


class OneDevice:
  """Everything is on one device."""

  mesh: Mesh | None = None
  num_devices = 1
  on_host = False  # whether rows of clients are numpy arrays
  on_disk = False  # whether states of clients are files of the run

  def begin(
    self, stage: Stage, data: ClientData, key: Key
  ) -> tuple[Server, Client]:
    """Return the states with which a method begins."""
    server_key, clients_key = jax.random.split(key)
    server = stage.algorithm.init_server(server_key)
    clients = self._first_clients(stage.algorithm, server, data, clients_key)
    return self.initialize(stage, server, clients, data)

  def _first_clients(self, algorithm, server, data, key):
    return init_clients(algorithm, server, data, key)

  def initialize(
    self, stage: Stage, server: Server, clients: Client, data: ClientData
  ) -> tuple[Server, Client]:
    """Return the states with which a later stage begins."""
    return stage.initialize(server, clients, data)

  def to_host(self, clients: Client, num_clients: int) -> Client:
    """Return the states [K, ...] of all clients, for a file."""
    return clients

  def whole(self, tree: PyTree) -> PyTree:
    """Return arrays of which this process has all, as numpy needs them."""
    return tree

  def from_host(self, clients: Client) -> Client:
    """Return the states [K, ...] of arrays on the host, where they belong."""
    return jax.tree.map(jnp.asarray, clients)

  def file_shapes(self, clients: Client) -> Client:
    """Return what the states of a file are read into, from their shapes."""
    return clients if type(self) is OneDevice else shapes_on_host(clients)

  def of_run(self, path: Path) -> 'OneDevice':
    """Return the placement of the run in this directory."""
    return self

  def save(
    self, step: int, clients: Client, num_clients: int, save_fn: Callable
  ) -> None:
    """Save a checkpoint: save_fn(what it holds of the clients)."""
    save_fn(self.to_host(clients, num_clients))

  def compile(
    self, fn: Callable, divided: int | None = None, **how: Any
  ) -> Callable:
    """Return the function, compiled for these devices; see `replicate`."""
    return replicate(fn, self.mesh, divided, **how)

  def lower(self, fn: Callable, *args: PyTree) -> jax.stages.Lowered:
    """Return fn of shapes of (server, clients, ..) as one device runs it."""
    return jax.jit(lambda *args: fn(*args)).lower(*args)

  def writer(self, *, in_place: bool = False) -> Callable:
    """Return (clients, change) -> the states after the change, compiled.

    In place: a program as small as the change, in the memory of the states
    before, which are gone.
    """
    put = partial(write_on_mesh, self.mesh) if self.mesh else write
    return self.compile(jax.jit(put), 0, reused=(0,) * in_place)

  def of_evaluation(self, fn: Callable) -> Callable:
    """Return what `make_evaluate` made, compiled for these devices."""
    return fn  # its mesh says for which

  @property
  def num_groups(self) -> int:
    """Return over how many devices, or groups of them, clients are divided."""
    return self.num_devices

  def bytes_of(self, tree: PyTree) -> int:
    """Return the bytes of a whole tree, or of one of shapes, on each device."""
    return trees.num_bytes(tree)

  def describe(self) -> str:
    """Return the line that a run logs about its devices, if any."""
    return describe(self.mesh)

  def round_up(self, size: int) -> int:
    """Return a number of clients that leaves no device without one."""
    return num_places(size, self.num_groups)


ONE_DEVICE = OneDevice()


class OnMesh(OneDevice):
  """Clients are divided over the devices of a mesh."""

  def __init__(self, mesh: Mesh):
    self.mesh, self.num_devices = mesh, mesh.size
    self._divided = NamedSharding(mesh, Spec(AXIS))

  def _first_clients(self, algorithm, server, data, key):
    init_share = lambda server, data, key, ids: init_clients(
      algorithm, server, client_of(data, ids), key, ids
    )
    specs = Spec(), Spec(), Spec(), Spec(AXIS)
    init = on_mesh(init_share, self.mesh, specs, Spec(AXIS))
    ids = jnp.arange(self.round_up(data.count.shape[0]))
    known = jnp.minimum(ids, data.count.shape[0] - 1)
    return self.compile(init)(server, data, key, known)

  def initialize(self, stage, server, clients, data):
    if stage.initialize is unchanged:
      return server, clients
    num_clients = data.count.shape[0]

    def initialize(server, clients, data):
      whole = trees.gather(clients, slice(num_clients))
      # Whole first: the partitioner cannot divide what a host callback returns.
      server, clients = jax.lax.with_sharding_constraint(
        stage.initialize(server, whole, data), NamedSharding(self.mesh, Spec())
      )
      clients = pad_rows(clients, self.round_up(num_clients))
      return server, jax.lax.with_sharding_constraint(clients, self._divided)

    return self.compile(initialize)(server, clients, data)

  def to_host(self, clients, num_clients):
    """Return the states as arrays on the host of every process.

    As many rows at a time as a device owns pass through each device, if the
    others belong to another process.
    """
    leaves, parts = jax.tree.leaves(clients), [clients]
    if not all(leaf.is_fully_addressable for leaf in leaves):
      (share, *_) = leaves[0].addressable_shards[0].data.shape
      fetch_rows, firsts = _rows_fn(self.mesh), range(0, len(leaves[0]), share)
      width = self.round_up(share)
      parts = (
        trees.gather(
          fetch_rows(clients, first + np.minimum(np.arange(width), share - 1)),
          slice(share),
        )
        for first in firsts
      )
    parts = [jax.tree.map(np.asarray, part) for part in parts]
    join = lambda *rows: np.concatenate(rows)[:num_clients]
    return jax.tree.map(join, *parts)

  def from_host(self, clients):
    """Return the states divided; every process has all and copies its own."""

    def divide(leaf):
      shape = self.round_up(leaf.shape[0]), *leaf.shape[1:]
      ids = np.minimum(np.arange(shape[0]), leaf.shape[0] - 1)
      return jax.make_array_from_callback(
        shape, self._divided, lambda where: leaf[ids[where[0]]]
      )

    return jax.tree.map(divide, clients)


class OnHost(OneDevice):
  """States and rows of clients are on the host; the work is on one device."""

  on_host = True

  def _first_clients(self, algorithm, server, data, key):
    init, block = init_fn(algorithm, server, data, key)
    num_clients = len(data.count)
    shapes = shapes_of_all(init, num_clients)
    clients = jax.tree.map(lambda of: np.empty(of.shape, of.dtype), shapes)
    if jax.tree.leaves(clients):
      for first in range(0, num_clients, block):
        ids = np.arange(first, min(first + block, num_clients))
        write_rows(clients, ids, init(ids))
    return clients

  def initialize(self, stage, server, clients, data):
    if stage.initialize is unchanged:
      return server, clients
    initialize = partial(stage.initialize, server, clients)
    if not is_read(initialize, data)[0]:
      data = data._replace(x=data.x[:1])
    server, clients = initialize(on_device(data))
    return server, jax.tree.map(np.array, clients)  # writeable copies

  def from_host(self, clients):
    return clients


class OnDisk(OnHost):
  """States of clients are files of the run; checkpoints do not hold them."""

  on_disk = True

  def __init__(self, folder: Path | None = None):
    self.folder = folder

  def of_run(self, path):
    return OnDisk(path / 'states')

  def files(
    self, algorithm: Algorithm, server: Server, data: ClientData, key: Key
  ) -> StateFiles:
    """Return the files of a run that began with this server, not yet read."""
    init, _ = init_fn(algorithm, server, data, key)
    num_clients = len(data.count)
    try:
      row = jax.tree.map(np.asarray, init(np.arange(1), out_axes=None))
      repeat = lambda leaf, ids: np.broadcast_to(leaf, (len(ids), *leaf.shape))
      first_rows = lambda ids: jax.tree.map(partial(repeat, ids=ids), row)
    except ValueError:  # clients begin with different states
      first_rows = init
    whole = shapes_of_all(init, num_clients)
    return StateFiles(self.folder, num_clients, whole, first_rows)

  def resumed(self, stage: Stage, data: ClientData, key: Key) -> StateFiles:
    """Return the files of the run that began with this stage and this key."""
    server_key, clients_key = jax.random.split(key)
    server = stage.algorithm.init_server(server_key)
    self._files = self.files(stage.algorithm, server, data, clients_key)
    return self._files

  def _first_clients(self, algorithm, server, data, key):
    self._files = self.files(algorithm, server, data, key)
    self._files.create()
    return self._files.clients

  def file_shapes(self, clients):
    return ()

  def save(self, step, clients, num_clients, save_fn):
    self._files.write_journal(step)
    save_fn(())
    self._files.keep_journal(step)


def unshared(clients: Client, beside: PyTree) -> Client:
  """Return the states in memory of their own, which a round may write into.

  A leaf is copied if its memory is also that of another one, or of `beside`.
  """
  used = set()

  def copied(leaf):
    if not isinstance(leaf, Array):
      return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
      return jnp.copy(leaf)  # keys do not say where they are
    shards = leaf.addressable_shards
    where = {shard.data.unsafe_buffer_pointer() for shard in shards}
    is_shared = where & used
    used.update(where)
    return jnp.copy(leaf) if is_shared else leaf

  jax.tree.map(copied, beside)
  return jax.tree.map(copied, clients)


def shapes_on_host(clients: PyTree) -> PyTree:
  """Return numpy arrays of these shapes that take no memory."""
  of = lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
  return jax.tree.map(of, clients)


def on_devices(number: int) -> OneDevice:
  """Return the placement on this many devices of every process."""
  return on_mesh_or_one(make_mesh(number))  # refuses more than there are


def on_mesh_or_one(mesh: Mesh | None) -> OneDevice:
  """Return the placement on the devices of a mesh; None is one device."""
  return ONE_DEVICE if mesh is None else OnMesh(mesh)


@cache
def _rows_fn(mesh: Mesh) -> Callable[[Client, Array], Client]:
  """Return the function of rows [n, ...] of these clients, on all devices."""
  rows_of = lambda share, ids: to_all(fetch(share, ids))
  return jax.jit(on_mesh(rows_of, mesh, (Spec(AXIS), Spec()), Spec()))

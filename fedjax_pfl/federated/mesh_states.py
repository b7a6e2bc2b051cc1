"""States of clients divided over a mesh: made, filled in, read.

  K clients on D devices    [K', ...], K' = K rounded up to a multiple of D
                            device d owns the rows from d K'/D on

They are made where they belong: no device ever holds those of all clients. The
rows from K on are copies of the last client, and are never read.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage, unchanged
from fedjax_pfl.core.types import Array, ClientData, Key
from fedjax_pfl.federated.dealing import num_places
from fedjax_pfl.federated.mesh_round import pad_rows
from fedjax_pfl.federated.rounds import init_clients
from fedjax_pfl.federated.row_exchange import AXIS, fetch, to_all
from fedjax_pfl.federated.sharding import replicate


def begin(
  stage: Stage, data: ClientData, key: Key, mesh: Mesh
) -> tuple[Server, Client]:
  """Return the states with which a method begins; clients are divided."""
  server_key, clients_key = jax.random.split(key)
  server = stage.algorithm.init_server(server_key)

  def init_share(server, data, key, ids):
    known = jnp.minimum(ids, data.count.shape[0] - 1)
    rows = data._replace(index=data.index[known], count=data.count[known])
    return init_clients(stage.algorithm, server, rows, key, known)

  init = jax.shard_map(
    init_share,
    mesh=mesh,
    in_specs=(Spec(), Spec(), Spec(), Spec(AXIS)),
    out_specs=Spec(AXIS),
    check_vma=False,
  )
  ids = jnp.arange(num_places(data.count.shape[0], mesh.size))
  clients = replicate(init, mesh)(server, data, clients_key, ids)
  return initialize_stage(stage, server, clients, data, mesh)


def initialize_stage(
  stage: Stage, server: Server, clients: Client, data: ClientData, mesh: Mesh
) -> tuple[Server, Client]:
  """Return the states with which a stage begins; clients are divided."""
  if stage.initialize is unchanged:
    return server, clients
  num_clients = data.count.shape[0]

  def initialize(server, clients, data):
    whole = trees.gather(clients, slice(num_clients))
    server, clients = stage.initialize(server, whole, data)
    clients = pad_rows(clients, num_places(num_clients, mesh.size))
    return jax.lax.with_sharding_constraint(
      (server, clients),
      (NamedSharding(mesh, Spec()), NamedSharding(mesh, Spec(AXIS))),
    )

  return replicate(initialize, mesh)(server, clients, data)


def divide(clients: Client, mesh: Mesh) -> Client:
  """Return the states [K, ...] of arrays on the host, divided over the mesh.

  Every process has all of them, and copies to its devices what those own.
  """
  divided = NamedSharding(mesh, Spec(AXIS))

  def place(leaf):
    shape = num_places(leaf.shape[0], mesh.size), *leaf.shape[1:]
    ids = np.minimum(np.arange(shape[0]), leaf.shape[0] - 1)
    return jax.make_array_from_callback(
      shape, divided, lambda where: leaf[ids[where[0]]]
    )

  return jax.tree.map(place, clients)


def to_host(clients: Client, num_clients: int) -> Client:
  """Return the states [K, ...] as arrays on the host of every process.

  As many rows at a time as a device owns pass through each device, if the
  others belong to another process.
  """
  leaves = jax.tree.leaves(clients)
  if all(leaf.is_fully_addressable for leaf in leaves):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_clients], clients)
  (share, *_) = leaves[0].addressable_shards[0].data.shape
  parts = [
    rows(clients, np.arange(first, first + share))
    for first in range(0, leaves[0].shape[0], share)
  ]
  return jax.tree.map(lambda *own: np.concatenate(own)[:num_clients], *parts)


def rows(clients: Client, ids: np.ndarray) -> Client:
  """Return the rows of these clients as arrays on the host."""
  mesh = jax.tree.leaves(clients)[0].sharding.mesh
  padded = np.pad(ids, (0, -len(ids) % mesh.size), mode='edge')
  fetched = _rows_fn(mesh)(clients, padded)
  return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(ids)], fetched)


@cache
def _rows_fn(mesh: Mesh) -> Callable[[Client, Array], Client]:
  return jax.jit(
    jax.shard_map(
      lambda share, ids: to_all(fetch(share, ids)),
      mesh=mesh,
      in_specs=(Spec(AXIS), Spec()),
      out_specs=Spec(),
      check_vma=False,
    )
  )

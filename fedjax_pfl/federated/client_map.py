"""Deal clients to the devices of a mesh, and run a function for them.

The clients of a cohort are sorted by size and dealt in turn, so that all
devices end at about the same time. Where all K clients take part, each device
runs those whose states it owns, and no state moves. Places that are left over
are the last ones: clients without examples, whose results are dropped.

placement.py says which device owns the state of a client. A round moves the
rows of its cohort alone, however many clients are registered:

  fetch   reduce-scatter [C, n]: from the owner to the device that trains
  write   all-gather [C, n]: to all devices, of which the owner keeps its own

What clients upload stays on the device that ran them. A sum over clients is a
sum on each device and then an all-reduce: it depends on the number of devices
by rounding, and moves a model, not C of them.

Rows travel as unsigned integers, one array for each width of a number, so that
a round has one collective for all leaves; to add zeros to bits is exact.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import (
  SERVER_FINITE,
  Algorithm,
  Client,
  Metrics,
  Server,
)
from fedjax_pfl.core.types import Array, ClientData, Key, PyTree
from fedjax_pfl.federated.chunking import map_chunks
from fedjax_pfl.federated.cohort import (
  Change,
  Cohort,
  Watch,
  all_send,
  by_size,
  client_update,
  gather,
  server_data,
  server_update,
)
from fedjax_pfl.federated.sharding import AXIS, num_places, on_mesh

# ---- Which device runs which client -----------------------------------------


class Deal(NamedTuple):
  """Which client is in which place: those of the first device come first."""

  ids: Array  # [places]
  count: Array  # [places] examples; 0 in the places that are left over
  position: Array  # [C] the place of every client of the cohort
  at_home: bool  # whether each device has the clients that it owns

  @property
  def size(self) -> int:
    return self.position.shape[0]


def pad_rows(clients: PyTree, size: int) -> PyTree:
  """Return the rows [K, ...] as [size, ...], filled up with the last one."""

  def pad(leaf):
    missing = size - leaf.shape[0]
    if not missing:
      return leaf
    last = jnp.broadcast_to(leaf[-1:], (missing, *leaf.shape[1:]))
    return jnp.concatenate([leaf, last])

  return jax.tree.map(pad, clients)


def deal_in_turn(ids: Array, count: Array, num_devices: int) -> Deal:
  """Return the deal of a cohort [C]; `count` [K] are the examples of all."""
  order = by_size(ids, count, num_devices)
  deal = deal_as_given(ids[order], num_devices, count[ids[order]])
  return deal._replace(position=jnp.argsort(order))


def deal_as_given(ids: Array, num_devices: int, count: Array | int = 0) -> Deal:
  """Return the deal of clients in this order, filled up with the first."""
  size = ids.shape[0]
  left_over = num_places(size, num_devices) - size
  return Deal(
    jnp.concatenate([ids, jnp.broadcast_to(ids[:1], (left_over,))]),
    jnp.pad(jnp.broadcast_to(count, ids.shape), (0, left_over)),
    jnp.arange(size),
    at_home=False,
  )


def deal_at_home(ids: Array, count: Array, num_devices: int) -> Deal:
  """Return the deal of all K clients to their owners, each sorted by size."""
  size = num_places(count.shape[0], num_devices)
  everyone = jnp.arange(size).reshape(num_devices, -1)
  is_left_over = everyone >= count.shape[0]
  count = jnp.pad(count, (0, size - count.shape[0]))
  order = jnp.lexsort((everyone, count[everyone], is_left_over), axis=1)
  dealt = jnp.take_along_axis(everyone, order, 1).ravel()
  return Deal(dealt, count[dealt], jnp.argsort(dealt)[ids], at_home=True)


# ---- A function of all of them -----------------------------------------------


def map_on_mesh(
  fn: Callable,
  shared: PyTree,
  clients: PyTree,
  deal: Deal,
  rows: Cohort,
  chunk: int,
  mesh: Mesh,
) -> tuple[PyTree, PyTree, PyTree]:
  """Return (states, uploads, metrics) of fn for the C clients of a deal.

  fn: shared -> the function of one client: row -> (state, upload, metrics).

  `rows` are those of every place, without the states. States are those of every
  place; at home those of all clients. Uploads [C, ...] are in the order of the
  deal; both stay divided. Metrics [C, ...] are in the order of the cohort, on
  all devices.
  """

  def run_share(shared, share, ids, own_ids, rows):
    if deal.at_home:
      places = _own_places(share, own_ids)
      states = trees.gather(share, places)
    else:
      states = fetch(share, ids)
    rows = rows._replace(clients=states)
    fresh, uploads, metrics = map_chunks(fn(shared), rows, chunk)
    if deal.at_home and fresh is not None:
      fresh = trees.scatter(share, places, fresh)
    return fresh, uploads, to_all(metrics)

  run = on_mesh(
    run_share,
    mesh,
    (Spec(), Spec(AXIS), Spec(), Spec(AXIS), Spec(AXIS)),
    (Spec(AXIS), Spec(AXIS), Spec()),
  )
  states, uploads, metrics = run(shared, clients, deal.ids, deal.ids, rows)
  # Rows without a client are the last ones, as are those with which the
  # compiler pads C to a multiple of the devices: to cut them off moves no data.
  uploads = lax.with_sharding_constraint(
    trees.gather(uploads, slice(deal.size)), NamedSharding(mesh, Spec(AXIS))
  )
  return states, uploads, trees.gather(metrics, deal.position)


# ---- A round of them ---------------------------------------------------------


def run_on_mesh(
  algorithm: Algorithm,
  watch: Watch | None,
  chunk: int,
  mesh: Mesh,
  data: ClientData,
  key: Key,
  states: tuple[Server, Client],
  ids: Array,
) -> tuple[Server, Change, Metrics]:
  """Return (server, states that changed, metrics) after a round of ids [C].

  Clients are divided as by `OnMesh` (placement.py), or whole arrays [K, ...].
  """
  server, clients = states
  num_clients = data.count.shape[0]
  # Where all take part, no state has to move.
  everyone = jax.tree.leaves(clients) and ids.shape == data.count.shape
  deal_fn = deal_at_home if everyone else deal_in_turn
  *arrays, at_home = deal_fn(ids, data.count, mesh.size)
  # Computed on every device: to divide such short arrays would cost messages.
  deal = Deal(*_on_all(arrays, mesh), at_home)
  known = jnp.minimum(deal.ids, num_clients - 1)  # in places left over, too
  rows = gather((), known, data)._replace(count=deal.count)

  fresh, uploads, metrics = map_on_mesh(
    lambda shared: client_update(algorithm, *shared, watch),
    (server, data, key),
    pad_rows(clients, num_places(num_clients, mesh.size)),
    deal,
    rows,
    chunk,
    mesh,
  )
  real = deal.ids[: deal.size], deal.count[: deal.size]
  of_server = server_data(algorithm, data)
  senders = all_send(*_on_all(real, mesh), data, mesh.size, of_server)
  server = server_update(algorithm, server, uploads, senders, key)
  places = senders.ids if at_home else slice(deal.size)
  if algorithm.respond is not None:
    kept = trees.gather(fresh, places)
    kept = algorithm.respond(server, kept, uploads, senders)
    fresh = trees.scatter(fresh, places, kept)
  metrics[SERVER_FINITE] = trees.all_finite(server)
  fresh = jax.tree.map(partial(_divided, mesh), fresh)
  change = Change(None if at_home else senders.ids, fresh)
  return _on_all(server, mesh), change, metrics


def write_on_mesh(mesh: Mesh, clients: Client, change: Change) -> Client:
  """Return the states after the change, in the shape of `clients`."""

  def write_share(share, ids, rows):
    real = slice(ids.shape[0])  # of places left over are the last rows
    return _keep_own(share, ids, trees.gather(to_all(rows), real))

  ids, states = change
  if ids is not None and (leaves := jax.tree.leaves(clients)):
    size = num_places(len(leaves[0]), mesh.size)
    specs = Spec(AXIS), Spec(), Spec(AXIS)
    put = on_mesh(write_share, mesh, specs, Spec(AXIS))
    states = put(pad_rows(clients, size), ids, states)
  as_given = lambda new, old: _divided(mesh, new[: len(old)])
  return jax.tree.map(as_given, states, clients)


def _on_all(tree: PyTree, mesh: Mesh) -> PyTree:
  return lax.with_sharding_constraint(tree, NamedSharding(mesh, Spec()))


def _divided(mesh: Mesh, leaf: Array) -> Array:
  """Return the rows divided over the mesh; on all devices if that is uneven."""
  # No program returns an array that is divided into unlike parts.
  spec = Spec() if leaf.shape[0] % mesh.size else Spec(AXIS)
  return lax.with_sharding_constraint(leaf, NamedSharding(mesh, spec))


# ---- Rows between devices, inside `on_mesh` ----------------------------------


def fetch(share: PyTree, ids: Array) -> PyTree:
  """Return the rows [C / D, ...] of this device's part of `ids` [C]."""
  index, is_own = _places(share, ids)
  rows = trees.gather(share, jnp.where(is_own, index, 0))

  def scatter(part):
    part = jnp.where(is_own[:, None], part, jnp.zeros((), part.dtype))
    return lax.psum_scatter(part, AXIS, tiled=True)

  return _as_bits_do(scatter, rows)


def to_all(rows: PyTree) -> PyTree:
  """Return the rows [C, ...] of all devices; each has [C / D, ...] of them."""
  return _as_bits_do(lambda part: lax.all_gather(part, AXIS, tiled=True), rows)


def _keep_own(share: PyTree, ids: Array, rows: PyTree) -> PyTree:
  """Return this device's share with those of the rows [C, ...] that it owns."""
  index, is_own = _places(share, ids)
  index = jnp.where(is_own, index, _length(share))  # of others: out of bounds
  put = lambda leaf, row: leaf.at[index].set(row, mode='drop')
  return jax.tree.map(put, share, rows)


def _own_places(share: PyTree, ids: Array) -> Array:
  """Return the places in this device's share of clients that it owns."""
  return ids - lax.axis_index(AXIS) * _length(share)


def _places(share, ids):
  index = _own_places(share, ids)
  return index, (index >= 0) & (index < _length(share))


def _length(share):
  """Return the clients that a device owns; 0 if they keep no state."""
  return next((leaf.shape[0] for leaf in jax.tree.leaves(share)), 0)


def _as_bits_do(move: Callable[[Array], Array], rows: PyTree) -> PyTree:
  """Return the rows after `move` of their bits: [C, n] of every width."""
  leaves, structure = jax.tree.flatten(rows)
  widths = [leaf.dtype.itemsize for leaf in leaves]
  for width in dict.fromkeys(widths):
    numbers = [i for i, bytes_each in enumerate(widths) if bytes_each == width]
    parts = [_to_bits(leaves[i]) for i in numbers]
    ends = np.cumsum([part.shape[1] for part in parts[:-1]])
    moved = jnp.split(move(jnp.concatenate(parts, 1)), ends, 1)
    for i, bits in zip(numbers, moved, strict=True):
      like = leaves[i]
      leaves[i] = bits.reshape(-1, *like.shape[1:]).view(like.dtype)
  return structure.unflatten(leaves)


def _to_bits(leaf: Array) -> Array:
  bits = leaf.view(f'uint{8 * leaf.dtype.itemsize}')
  return bits.reshape(leaf.shape[0], math.prod(leaf.shape[1:]))

"""Run a function for the clients of a deal, divided over the devices of a mesh.

States of clients [K, ...] are divided over the mesh: device d of D owns the
rows from d K/D on. A round moves the rows of its cohort and no others:

  fetch   reduce-scatter [C, n]: from the owner to the device that trains
  to_all  all-gather [C, n]: to all devices, of which the owner keeps its own

What clients upload stays on the device that ran them. A sum over clients, in
what a method writes as its `aggregate`, is a sum on each device and then an
all-reduce: it depends on the number of devices by rounding, and moves a model,
not C of them.

Rows travel as unsigned integers, one array for each width of a number, so that
a round has one collective for all leaves; to add zeros to bits is exact.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, PyTree
from fedjax_pfl.federated.chunking import map_chunks
from fedjax_pfl.federated.dealing import Deal
from fedjax_pfl.federated.sharding import AXIS, on_mesh

# (shared, state, row) -> (state, upload, metrics) of one client
ClientFn = Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, PyTree]]


def map_on_mesh(
  fn: ClientFn,
  shared: PyTree,
  clients: PyTree,
  deal: Deal,
  rows: PyTree,
  chunk: int,
  mesh: Mesh,
) -> tuple[PyTree, PyTree, PyTree]:
  """Return (clients, uploads, metrics) of fn for the C clients of a deal.

  A state that fn returns as None stays as it was. `rows` is what a client has
  besides its state, for every place of the deal; `shared` is on all devices.
  Uploads [C, ...] are in the order of the deal and stay divided; metrics
  [C, ...] are in the order of the cohort, on all devices.
  """

  def run_share(shared, share, ids, own_ids, rows):
    if deal.at_home:
      places = _own_places(share, own_ids)
      states = trees.gather(share, places)
    else:
      states = fetch(share, ids)
    fresh, uploads, metrics = _map_share(
      lambda row: fn(shared, *row), (states, rows), chunk
    )
    if fresh is None:
      metrics = to_all(metrics)
    elif deal.at_home:
      share = trees.scatter(share, places, fresh)
      metrics = to_all(metrics)
    else:  # one collective for both
      fresh, metrics = to_all((fresh, metrics))
      real = slice(deal.size)
      share = _keep_own(share, ids[real], trees.gather(fresh, real))
    return share, uploads, metrics

  run = on_mesh(
    run_share,
    mesh,
    (Spec(), Spec(AXIS), Spec(), Spec(AXIS), Spec(AXIS)),
    (Spec(AXIS), Spec(AXIS), Spec()),
  )
  clients, uploads, metrics = run(shared, clients, deal.ids, deal.ids, rows)
  # The places without a client are the last ones, as those are by which the
  # compiler makes C divisible: to cut them off moves nothing.
  uploads = lax.with_sharding_constraint(
    trees.gather(uploads, slice(deal.size)), NamedSharding(mesh, Spec(AXIS))
  )
  return clients, uploads, trees.gather(metrics, deal.position)


def _map_share(fn, rows, chunk):
  if chunk == 1:  # no client axis even for a single row: the same bits
    return lax.map(fn, rows)
  return map_chunks(fn, rows, chunk)


# ---- Rows between devices, inside `on_mesh` ----------------------------------


def fetch(share: PyTree, ids: Array) -> PyTree:
  """Return the rows [C / D, ...] of this device's part of `ids` [C].

  Every device hands over the rows that it owns, and zeros for the others.
  """
  place, is_own = _places(share, ids)
  rows = trees.gather(share, jnp.where(is_own, place, 0))

  def scatter(part):
    own = jnp.where(is_own[:, None], part, jnp.zeros((), part.dtype))
    return lax.psum_scatter(own, AXIS, tiled=True)

  return _as_bits_do(scatter, rows)


def to_all(rows: PyTree) -> PyTree:
  """Return the rows [C, ...] of all devices; each has [C / D, ...] of them."""
  return _as_bits_do(lambda part: lax.all_gather(part, AXIS, tiled=True), rows)


def _keep_own(share: PyTree, ids: Array, rows: PyTree) -> PyTree:
  """Return this device's share with those of the rows [C, ...] that it owns."""
  place, is_own = _places(share, ids)
  place = jnp.where(is_own, place, _length(share))  # of others: out of bounds
  return jax.tree.map(
    lambda leaf, row: leaf.at[place].set(row, mode='drop'), share, rows
  )


def _own_places(share: PyTree, ids: Array) -> Array:
  """Return the places in this device's share of clients that it owns."""
  return ids - lax.axis_index(AXIS) * _length(share)


def _places(share, ids):
  place = _own_places(share, ids)
  return place, (place >= 0) & (place < _length(share))


def _length(share):
  """Return the clients that a device owns; 0 if they keep no state."""
  return next((leaf.shape[0] for leaf in jax.tree.leaves(share)), 0)


def _as_bits_do(move: Callable[[Array], Array], rows: PyTree) -> PyTree:
  """Return the rows after `move` of their bits: [C, n] of every width."""
  leaves, structure = jax.tree.flatten(rows)
  widths = [leaf.dtype.itemsize for leaf in leaves]
  sizes = [math.prod(leaf.shape[1:]) for leaf in leaves]
  parts, moved = {}, {}
  for width, leaf in zip(widths, map(_to_bits, leaves), strict=True):
    parts.setdefault(width, []).append(leaf)
  for width, part in parts.items():
    own = [size for size, w in zip(sizes, widths, strict=True) if w == width]
    ends = [sum(own[: n + 1]) for n in range(len(own) - 1)]
    moved[width] = iter(jnp.split(move(jnp.concatenate(part, 1)), ends, 1))
  return structure.unflatten(
    _from_bits(next(moved[width]), leaf)
    for width, leaf in zip(widths, leaves, strict=True)
  )


def _to_bits(leaf: Array) -> Array:
  if leaf.dtype == bool:
    leaf = leaf.astype(jnp.uint8)
  bits = lax.bitcast_convert_type(leaf, f'uint{8 * leaf.dtype.itemsize}')
  return bits.reshape(leaf.shape[0], math.prod(leaf.shape[1:]))


def _from_bits(bits: Array, like: Array) -> Array:
  bits = bits.reshape(-1, *like.shape[1:])
  if like.dtype == bool:
    return bits.astype(bool)
  return lax.bitcast_convert_type(bits, like.dtype)

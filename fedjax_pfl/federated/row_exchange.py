"""Move rows of clients between the devices of a mesh; inside `jax.shard_map`.

States of clients [K, ...] are divided over the mesh: device d of D owns the
rows from d K/D on. A round moves the rows of its cohort and no others:

  fetch   reduce-scatter [C, n]: from the owner to the device that trains
  to_all  all-gather [C, n]: to all devices, of which the owner keeps its own

Rows travel as unsigned integers, one array for each width of a number, so that
a round has one collective for all leaves; to add zeros to bits is exact.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Array, PyTree

AXIS = 'clients'


def fetch(share: PyTree, ids: Array) -> PyTree:
  """Return the rows [C / D, ...] of this device's part of `ids` [C].

  Every device hands over the rows that it owns, and zeros for the others.
  """
  place, is_own = _places(share, ids)
  rows = trees.gather(share, jnp.where(is_own, place, 0))
  parts = {
    width: lax.psum_scatter(
      jnp.where(is_own[:, None], part, jnp.zeros((), part.dtype)),
      AXIS,
      tiled=True,
    )
    for width, part in _pack(rows).items()
  }
  return _unpack(parts, rows)


def to_all(rows: PyTree) -> PyTree:
  """Return the rows [C, ...] of all devices; each has [C / D, ...] of them."""
  parts = {
    width: lax.all_gather(part, AXIS, tiled=True)
    for width, part in _pack(rows).items()
  }
  return _unpack(parts, rows)


def keep_own(share: PyTree, ids: Array, rows: PyTree) -> PyTree:
  """Return this device's share with those of the rows [C, ...] that it owns."""
  place, is_own = _places(share, ids)
  place = jnp.where(is_own, place, _length(share))  # of others: out of bounds
  return jax.tree.map(
    lambda leaf, row: leaf.at[place].set(row, mode='drop'), share, rows
  )


def own_places(share: PyTree, ids: Array) -> Array:
  """Return the places in this device's share of clients that it owns."""
  return ids - lax.axis_index(AXIS) * _length(share)


def _places(share, ids):
  place = own_places(share, ids)
  return place, (place >= 0) & (place < _length(share))


def _length(share):
  """Return the clients that a device owns; 0 if they keep no state."""
  return next((leaf.shape[0] for leaf in jax.tree.leaves(share)), 0)


def _pack(rows: PyTree) -> dict[int, Array]:
  """Return the bits of all leaves by width: {bytes of a number: [C, n]}."""
  parts = {}
  for leaf in jax.tree.leaves(rows):
    parts.setdefault(leaf.dtype.itemsize, []).append(_as_bits(leaf))
  return {width: jnp.concatenate(part, 1) for width, part in parts.items()}


def _as_bits(leaf: Array) -> Array:
  if leaf.dtype == bool:
    leaf = leaf.astype(jnp.uint8)
  bits = lax.bitcast_convert_type(leaf, f'uint{8 * leaf.dtype.itemsize}')
  return bits.reshape(leaf.shape[0], math.prod(leaf.shape[1:]))


def _unpack(parts: dict[int, Array], like: PyTree) -> PyTree:
  """Return what `_pack` was given, with as many rows as the parts have."""
  leaves, begins = [], dict.fromkeys(parts, 0)
  for leaf in jax.tree.leaves(like):
    width, size = leaf.dtype.itemsize, math.prod(leaf.shape[1:])
    begin = begins[width]
    begins[width] += size
    bits = parts[width][:, begin : begin + size]
    bits = bits.reshape(-1, *leaf.shape[1:])
    if leaf.dtype == bool:
      leaves.append(bits.astype(bool))
    else:
      leaves.append(lax.bitcast_convert_type(bits, leaf.dtype))
  return jax.tree.unflatten(jax.tree.structure(like), leaves)

"""Toom and Cook's transforms of tiles of 6 pixels, an axis after the other.

  y_k = sum_u x_{k+u} K_u,  k < m,  u < r,  m + r = 7
      = (A^T [(G K) * (B^T x)])_k

is an evaluation at five points p_i and at infinity. With F_i = prod_{k != i}
(p_i - p_k), row i of A is (1, p_i, p_i^2, ..), of G the same over F_i, and of
B^T, which does not depend on m, the coefficients of prod_{k != i} (z - p_k).
Exact up to rounding: with 0, +-3/4, +-3/2 the error of float32 is 2 to 3 times
that of the direct sum, with the usual 0, +-1, +-2 4 to 6 times.

Images are [B, H, W, C], so that what lies side by side has the same constants:
a pass is one loop without branches, zeros in the matrices included.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.passes import one_pass

SIZE = 6
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)


def _others(i: int) -> list[float]:
  return [p for k, p in enumerate(_POINTS) if k != i]


def _powers(count: int) -> np.ndarray:
  rows = [[p**k for k in range(count)] for p in _POINTS]
  return np.array([*rows, [0.0] * (count - 1) + [1.0]])


_BT = np.array(
  [[*np.poly(_others(i))[::-1], 0.0] for i in range(5)]
  + [[*np.poly(_POINTS)[::-1]]]
)


def kernel_matrix(r: int) -> np.ndarray:
  """Return (G x G)[6 i + j, r u + v], for kernels [r r, ..] in both axes."""
  f = [np.prod([p - q for q in _others(i)]) for i, p in enumerate(_POINTS)]
  g = _powers(r) / np.array([*f, 1.0])[:, None]
  return np.kron(g, g)


def to_tiles(x: Array, m: int) -> Array:
  """Return B^T d B [6, 6, B, t, s, C] of the tiles d of x.

  x is [B, m t + 6 - m, m s + 6 - m, C]; tiles begin at every m-th pixel.
  """
  return _read(m, 3, 1)(_read(m, 1, 0)(x))


def from_tiles(dv: Array, m: int) -> Array:
  """Return the gradient of `to_tiles`: tiles overlap by 6 - m pixels."""
  overlap = -(-SIZE // m) - 1
  columns = _add_up(m, 1, 4)(margin((4, overlap, overlap))(dv))
  return _add_up(m, 0, 2)(margin((2, overlap, overlap))(columns))


def from_products(products: Array, m: int) -> Array:
  """Return A^T M A [B, m t, m s, O] of M [6, 6, B, t, s, O]."""
  *_, b, t, s, o = products.shape
  columns = _contract(m, False, 1, 4)(products)
  return _contract(m, False, 0, 2)(columns).reshape(b, m * t, m * s, o)


def to_products(dy: Array, m: int) -> Array:
  """Return the gradient of `from_products`: A dy A^T."""
  b, h, w, o = dy.shape
  pixels = dy.reshape(b, h // m, m, w // m, m, o)
  return _contract(m, True, 3, 0)(_contract(m, True, 4, 0)(pixels))


def _mix(matrix: np.ndarray, terms: Sequence[Array], axis: int) -> Array:
  """Return sum_u matrix[:, u] terms[u], with a new axis for the rows."""
  shape = [1] * (terms[0].ndim + 1)
  shape[axis] = len(matrix)
  total = None
  for column, term in zip(matrix.T, terms, strict=True):
    if not column.any():
      continue
    column = jnp.asarray(column.reshape(shape), term.dtype)
    product = lax.expand_dims(term, (axis,)) * column
    total = product if total is None else total + product
  return total


@functools.cache
def _read(m: int, axis: int, new: int):
  @one_pass
  def read(x):
    end = x.shape[axis] - SIZE + 1
    pixels = [lax.slice_in_dim(x, u, u + end, m, axis) for u in range(SIZE)]
    return _mix(_BT, pixels, new)

  return read


@functools.cache
def _contract(m: int, is_gradient: bool, axis: int, new: int):
  matrix = _powers(m) if is_gradient else _powers(m).T

  @one_pass
  def contract(x):
    terms = [lax.index_in_dim(x, i, axis, False) for i in range(x.shape[axis])]
    return _mix(matrix, terms, new)

  return contract


@functools.cache
def margin(*edges: tuple[int, int, int]):
  """Return x -> x with zeros; an edge is (axis, before, after).

  A copy into an array of zeros: padding inside of a sum would be a branch for
  every number.
  """

  @one_pass
  def extend(x):
    shape, start = list(x.shape), [0] * x.ndim
    for axis, before, after in edges:
      shape[axis] += before + after
      start[axis] = before
    return lax.dynamic_update_slice(lax.full(shape, 0, x.dtype), x, start)

  return extend


@functools.cache
def _add_up(m: int, axis: int, tiles: int):
  """Return the sum over points `axis` and over the tiles that meet a pixel.

  `tiles` has a margin of as many tiles as overlap. Pixel m s + k of tile s is
  pixel k + m e of tile s - e.
  """
  overlap = -(-SIZE // m) - 1
  place = tiles - (axis < tiles)

  @one_pass
  def add_up(x):
    count = x.shape[tiles] - overlap
    total = None
    for e in range(overlap + 1):
      matrix = np.zeros((m, SIZE))
      pixels = _BT[:, m * e : m * (e + 1)].T
      matrix[: len(pixels)] = pixels
      start = overlap - e
      met = lax.slice_in_dim(x, start, start + count, 1, tiles)
      terms = [lax.index_in_dim(met, i, axis, False) for i in range(SIZE)]
      part = _mix(matrix, terms, place + 1)
      total = part if total is None else total + part
    shape = list(total.shape)
    shape[place : place + 2] = [count * m]
    return lax.reshape(total, shape)

  return add_up

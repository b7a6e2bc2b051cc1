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

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core.types import Array
from fedjax_pfl.models.ops.passes import add_all, one_pass

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
  return _read(_read(x, m=m, axis=1, new=0), m=m, axis=3, new=1)


def from_tiles(dv: Array, m: int) -> Array:
  """Return the gradient of `to_tiles`: tiles overlap by 6 - m pixels."""
  for axis, tiles in ((1, 4), (0, 2)):
    overlap = -(-SIZE // m) - 1
    dv = margin(dv, [(tiles, overlap, overlap)])
    dv = _add_up(dv, m=m, axis=axis, tiles=tiles, overlap=overlap)
  return dv


def from_products(products: Array, m: int) -> Array:
  """Return A^T M A [B, m t, m s, O] of M [6, 6, B, t, s, O]."""
  *_, b, t, s, o = products.shape
  columns = _contract(products, m=m, is_gradient=False, axis=1, new=4)
  pixels = _contract(columns, m=m, is_gradient=False, axis=0, new=2)
  return pixels.reshape(b, m * t, m * s, o)


def to_products(dy: Array, m: int) -> Array:
  """Return the gradient of `from_products`: A dy A^T."""
  b, h, w, o = dy.shape
  pixels = dy.reshape(b, h // m, m, w // m, m, o)
  columns = _contract(pixels, m=m, is_gradient=True, axis=4, new=0)
  return _contract(columns, m=m, is_gradient=True, axis=3, new=0)


def _mix(matrix: np.ndarray, terms: Sequence[Array], axis: int) -> Array:
  """Return sum_u matrix[:, u] terms[u], with a new axis for the rows."""
  shape = [1] * (terms[0].ndim + 1)
  shape[axis] = len(matrix)
  return add_all(
    lax.expand_dims(term, (axis,))
    * jnp.asarray(column.reshape(shape), term.dtype)
    for column, term in zip(matrix.T, terms, strict=True)
    if column.any()
  )


@one_pass
def _read(x, *, m, axis, new):
  end = x.shape[axis] - SIZE + 1
  pixels = [lax.slice_in_dim(x, u, u + end, m, axis) for u in range(SIZE)]
  return _mix(_BT, pixels, new)


@one_pass
def _contract(x, *, m, is_gradient, axis, new):
  matrix = _powers(m) if is_gradient else _powers(m).T
  return _mix(matrix, _unstacked(x, axis), new)


def _unstacked(x: Array, axis: int) -> list[Array]:
  return [lax.index_in_dim(x, i, axis, False) for i in range(x.shape[axis])]


def margin(x: Array, edges: Sequence[tuple[int, int, int]]) -> Array:
  """Return x with zeros; an edge is (axis, before, after).

  A copy into an array of zeros: padding inside of a sum would be a branch for
  every number.
  """
  edges = tuple(edges)
  is_needed = any(before or after for _, before, after in edges)
  return _extend(x, edges=edges) if is_needed else x


@one_pass
def _extend(x, *, edges):
  shape, start = list(x.shape), [0] * x.ndim
  for axis, before, after in edges:
    shape[axis] += before + after
    start[axis] = before
  return lax.dynamic_update_slice(lax.full(shape, 0, x.dtype), x, start)


@one_pass
def _add_up(x, *, m, axis, tiles, overlap):
  """Return the sum over points `axis` and over the tiles that meet a pixel.

  `tiles` has a margin of as many tiles as overlap. Pixel m s + k of tile s is
  pixel k + m e of tile s - e.
  """
  place = tiles - (axis < tiles)
  count = x.shape[tiles] - overlap

  def part(e):
    matrix = np.zeros((m, SIZE))
    pixels = _BT[:, m * e : m * (e + 1)].T
    matrix[: len(pixels)] = pixels
    start = overlap - e
    met = lax.slice_in_dim(x, start, start + count, 1, tiles)
    return _mix(matrix, _unstacked(met, axis), place + 1)

  total = add_all(part(e) for e in range(overlap + 1))
  shape = list(total.shape)
  shape[place : place + 2] = [count * m]
  return lax.reshape(total, shape)
